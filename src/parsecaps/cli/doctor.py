"""`parsecaps doctor`: what this machine can do, and where things lie on it."""

from typing import Annotated

import typer

from parsecaps.cli.output import JsonFile, check_writable, console, one_line_errors, write_json


@one_line_errors
def doctor(
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help="Remove the prepared images; they are made anew when needed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --clear-cache: do not ask first.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Say what this machine can do, and where caches and weights lie and how large they are.

    In ten lines: the build of torch and the threads it would take now, GPU, which DICOM files can be read, the extras
    that are installed, Chromium, free disk, caches and weights.

    **Examples**

    `parsecaps doctor`

    `parsecaps doctor --json machine.json` (to send along with a question)

    `parsecaps doctor --clear-cache --yes`
    """
    check_writable(json_file)
    if yes and not clear_cache:
        raise ValueError("--yes answers a question of --clear-cache; run parsecaps doctor --clear-cache --yes")
    if clear_cache:
        _clear(yes)
        return
    from parsecaps.machine import look_at_machine
    from parsecaps.report.terminal_machine import machine_lines

    machine = look_at_machine()
    for line in machine_lines(machine):
        console().print(line, highlight=False, soft_wrap=True)
    write_json(json_file, machine.as_dict())


def _clear(yes: bool) -> None:
    """Empty the cache of prepared images, if that is meant."""
    from parsecaps.data.cache import cache_folder, cache_size
    from parsecaps.data.cache import clear_cache as remove_prepared
    from parsecaps.report.terminal_machine import size

    folder = cache_folder()
    there, screen = cache_size(folder), console()
    if not there.bytes:
        screen.print(f"the cache is empty: {folder}", highlight=False, soft_wrap=True)
        return
    what = f"{there.sets:,} prepared data sets ({size(there.bytes)}) in {folder}"
    if not yes and not _agreed(f"Remove {what}?"):
        screen.print("nothing is removed", highlight=False)
        return
    gone = remove_prepared(folder)
    kept = f"; {there.sets - gone.sets:,} are in use and stay" if gone.sets < there.sets else ""
    screen.print(f"removed {size(gone.bytes)} from {folder}{kept}", highlight=False, soft_wrap=True)


def _agreed(question: str) -> bool:
    try:
        return typer.confirm(question)
    except typer.Abort:  # nobody is there, or Ctrl-C
        print()
        raise ValueError("the question has no answer; run parsecaps doctor --clear-cache --yes") from None
