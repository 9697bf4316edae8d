"""What must hold for the rows of `parsecaps predict`: each file that was asked for once, an answer or an error."""

import csv
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import category

from tests.attack.commands import Outcome
from tests.attack.crafted import SECRET_START, Crafted

_LEFT_OUT = re.compile(r"left out ([\d,]+)|([\d,]+) [a-z ]*left out")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes a cell that begins like this for a formula
_BREAKS = {"Cc", "Zl", "Zp"}  # Unicode's control characters, and separators of lines and paragraphs


class Verdict(NamedTuple):
    """What is wrong with single files, by their names as they were asked for; and what no file can be named for."""

    by_file: dict[str, str]
    general: str

    @property
    def clean(self) -> bool:
        return not self.by_file and not self.general


def judge(outcome: Outcome, asked: Sequence[str], table: Path, crafted: dict[str, Crafted] | None = None) -> Verdict:
    """Judge a command that should have answered `asked`; `crafted` says more about some of them."""
    general = list(outcome.problems)
    if "Traceback" in outcome.printed and not general:
        general.append(f"prints a traceback: {outcome.stderr.splitlines()[-1].strip()[:200]}")
    if outcome.code != 0 and not general:
        general.append(f"ends with exit code {outcome.code}: {' '.join(outcome.stderr.split())[-200:]}")
    if general:
        return Verdict({}, "; ".join(general))
    try:
        rows = read_table(table)
    except (OSError, ValueError, KeyError, csv.Error) as error:
        return Verdict({}, f"leaves a table that cannot be read ({error})")
    return judge_rows(asked, rows, crafted or {}, _left_out(outcome))


def read_table(path: Path) -> list[dict[str, Any]]:
    """The rows of a `.csv` or `.jsonl` file, each with image, frame, class, probabilities and error."""
    with open(path, encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in file]
        rows: list[dict[str, Any]] = list(csv.DictReader(file, strict=True))
    for row in rows:
        if None in row or None in row.values():
            raise ValueError("a row has more or fewer cells than there are columns")
        shares = {name: value for name, value in row.items() if name.startswith("probability:") and value}
        formulas = [value for value in row.values() if isinstance(value, str) and value.startswith(_FORMULA)]
        row |= {"frame": int(row["frame"]) if row["frame"] else None, "formulas": formulas}
        row["probabilities"] = {name: float(value) for name, value in shares.items()}
    return rows


def judge_rows(asked: Sequence[str], rows: list[dict[str, Any]], crafted: dict[str, Crafted], left_out: int) -> Verdict:
    """Judge the rows for files that were asked for, of which so many may have none."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["image"], []).append(row)
    problems: dict[str, str] = {}
    missing, odd = [], []
    for name in asked:
        own = found.pop(name, None)
        if own is not None:
            if wrong := _wrong(own, crafted.get(name)):
                problems[name] = wrong
        else:
            (missing if name.isascii() and name.isprintable() and not _is_formula(name) else odd).append(name)
    # A name that cannot be written as it is may be written in another way; there must still be one row for each.
    for name, own in found.items():
        if wrong := _wrong(own, None):
            problems[name] = wrong
    lacking = len(missing) + len(odd) - len(found) - left_out
    if lacking > 0:
        problems |= {
            name: "has no row and is not counted as left out"
            for name in (missing if len(missing) >= lacking else [*missing, *odd])
        }
    more = f"{-lacking} more files are in the table, or left out, than were asked for" if lacking < 0 else ""
    return Verdict(problems, more)


def _wrong(rows: list[dict[str, Any]], crafted: Crafted | None) -> str:
    """What is wrong with the rows of one file, or nothing."""
    frames = [row["frame"] for row in rows]
    if frames != [None] and frames != list(range(len(frames))):
        return f"has rows for the frames {str(frames[:5])[:100]}, {len(frames)} in all"
    if crafted is not None and crafted.frames not in (None, len(rows)):
        return f"has {len(rows)} rows for {crafted.frames} frames"
    for row in rows:
        error, shares = row["error"], row.get("probabilities") or {}
        if SECRET_START in json.dumps(row):
            return "shows a file of the machine"
        if row.get("formulas"):
            return f"has a cell that a spreadsheet calculates: {row['formulas'][0]!r}"
        if any(category(character) in _BREAKS for character in error):
            return f"has an error that is not one line of text: {error!r}"
        if error and (row.get("class") or shares):
            return "has an answer and an error"
        if not error and not (shares and all(map(math.isfinite, shares.values()))):
            return f"has neither an answer nor an error: {shares}"
        if not error and abs(sum(shares.values()) - 1) > 1e-3:
            return f"has probabilities of {sum(shares.values())} in all"
        if not error and crafted is not None and crafted.refused:
            return "is answered, and should be refused"
    return ""


def _is_formula(name: str) -> bool:
    return name.startswith(_FORMULA)


def _left_out(outcome: Outcome) -> int:
    """How many files the command says it has left out."""
    found = _LEFT_OUT.search(outcome.printed)
    return int((found[1] or found[2]).replace(",", "")) if found else 0
