"""ParseCaps: a capsule network whose routing is a parse tree one can read."""

__version__ = "0.1.0"
