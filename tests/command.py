"""The command line, as a user types it."""

from typer.testing import CliRunner, Result

from parsecaps.cli import app
from tests.messages import message


def run(*arguments: object) -> Result:
    """What a command prints, and its exit code."""
    return CliRunner().invoke(app, [str(each) for each in arguments])


def done(*arguments: object) -> Result:
    """The same of a command that must succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def fails(*arguments: object, hide: str = "") -> None:
    """A command that a mistake ends, with one line: that in `messages.txt`."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    line = result.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    message(line, hide=hide)
