"""The command line, as a user types it."""

from typer.testing import CliRunner, Result

from parsecaps.cli import app


def run(*arguments: object) -> Result:
    """What a command prints, and its exit code."""
    return CliRunner().invoke(app, [str(each) for each in arguments])


def done(*arguments: object) -> Result:
    """The same of a command that must succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments: object) -> str:
    """The one line that a command says of a mistake."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    line = result.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    return line
