"""`python -m parsecaps`: the command line."""

from parsecaps.cli import app

if __name__ == "__main__":
    app()
