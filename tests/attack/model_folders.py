"""Models and runs from a stranger: damaged, larger than they say, or with links to what is somebody else's."""

import json
import shlex
import shutil
import signal
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file

from tests.attack.commands import MODEL, Kill, Outcome, Place, one_line
from tests.attack.kills import train
from tests.attack.rows import judge
from tests.attack.runner import START_SECONDS, Problem, Report

_IMAGE = MODEL.parent / "images" / "nevus.png"
_UNTOUCHED = "untouched"  # the one that has to be used, not refused
_DEEP = 100_000


def attack_models(place: Place, report: Report, chosen: Iterable[str] | None = None) -> None:
    """Ask models that were tampered with: each is refused in one line, or its answers are whole."""
    for name in chosen or MODELS:
        folder, out = place.files / f"model {name}", place.out / "model.jsonl"
        shutil.copytree(MODEL, folder)
        MODELS[name](folder)
        out.unlink(missing_ok=True)
        outcome = place.run("predict", "--out", out, folder, _IMAGE, seconds=START_SECONDS)
        problems = one_line(outcome)
        if outcome.code == 0 and not problems:
            verdict = judge(outcome, [str(_IMAGE)], out)
            problems = [verdict.general, *verdict.by_file.values()] if not verdict.clean else []
        _count(report, "model", name, folder, outcome, problems)


def attack_runs(place: Place, report: Report) -> None:
    """Resume runs that were tampered with: no victim's file changes, and what is refused is refused in one line."""
    stopped = place.out / "stopped run"
    train(place, stopped, Kill(signal.SIGKILL, 0.0, stopped / "checkpoints" / "last.pt", wait=True))
    for name, tamper in RUNS.items():
        folder, victim = place.out / f"run {name}", place.victim / name
        shutil.copytree(stopped, folder)
        shutil.copytree(folder / "checkpoints", victim)
        (victim / "best-0099.pt").write_bytes(b"precious")
        tamper(folder, victim)
        outcome = train(place, folder)
        _count(report, "run", name, folder, outcome, one_line(outcome, of_training=True))


def _count(report: Report, kind: str, name: str, folder: Path, outcome: Outcome, problems: list[str]) -> None:
    found = []
    if name == _UNTOUCHED and outcome.code and not problems:
        problems = [f"is refused, though nobody touched it: {' '.join(outcome.stderr.split())[-200:]}"]
    if problems:
        kept = shlex.quote(str(report.keep(folder)))
        again = f"predict --out rows.jsonl {kept} {_IMAGE}" if kind == "model" else f"train --resume {kept}"
        found.append(Problem(name, "; ".join(problems), f"parsecaps {again}"))
    report.add(kind, 1, found, outcome.memory)


def _json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def _weight(folder: Path, value: float) -> None:
    path = folder / "bundle" / "model.safetensors"
    tensors = load_file(path)
    for tensor in tensors.values():
        if tensor.dtype.kind == "f":
            tensor.flat[0] = value
    save_file(tensors, path)


def _setting(**settings: object) -> Callable[[Path], object]:
    return lambda folder: _json(folder / "bundle" / "config.json", lambda content: content["config"].update(settings))


def _size(size: int) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        _setting(image_size=size)(folder)
        _json(folder / "bundle" / "bundle.json", lambda content: content["preparation"].update(size=size))

    return change


def _nested(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "bundle" / name).write_text("[" * _DEEP + "]" * _DEEP, encoding="utf-8")


def _weights(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        path = folder / "bundle" / "model.safetensors"
        path.write_bytes(change(path.read_bytes()))

    return write


def _claim(data: bytes) -> bytes:
    """A header of safetensors with one tensor of 10^15 numbers."""
    text = json.dumps({"x": {"dtype": "F32", "shape": [10**15], "data_offsets": [0, 4 * 10**15]}}).encode()
    return struct.pack("<Q", len(text)) + text + data[:64]


def _link(name: str, target: str = "") -> Callable[[Path, Path], object]:
    """Put a link to the victim's folder, or to a file in it, where the run has or will have something of its own."""

    def tamper(folder: Path, victim: Path) -> None:
        place = folder / name
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        place.symlink_to(victim / target if target else victim)

    return tamper


def _alias_bomb(folder: Path, victim: Path) -> None:
    """Nine lists of nine of the one before: a billion words in a few hundred bytes."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    (folder / "config.yaml").write_text("\n".join([*lines, "data: *a9", ""]), encoding="utf-8")


MODELS: dict[str, Callable[[Path], object]] = {
    _UNTOUCHED: lambda folder: None,
    "nan weights": lambda folder: _weight(folder, float("nan")),
    "inf weights": lambda folder: _weight(folder, float("inf")),
    "10^9 classes": _setting(num_classes=10**9),
    "-1 classes": _setting(num_classes=-1),
    "10^9 concepts": _setting(num_concepts=10**9),
    "10^6 pixels": _size(10**6),
    "10^9 channels": _setting(stem_channels=[10**9] * 4),
    "10^9 dimensions": _setting(dims=[10**9] * 4),
    "10^9 cells": _setting(cells=[10**9] * 3),
    "text for a number": _setting(num_classes="2; import os"),
    "unknown model": lambda folder: _json(folder / "bundle" / "config.json", lambda c: c.update(model="os.system")),
    "nested config": _nested("config.json"),
    "nested bundle": _nested("bundle.json"),
    "nested calibration": _nested("calibration.json"),
    "10^6 digits": lambda folder: (folder / "bundle" / "bundle.json").write_text("9" * 10**6, encoding="utf-8"),
    "nan temperature": lambda folder: (folder / "bundle" / "calibration.json").write_text(
        '{"temperature": NaN, "quantiles": null, "note": null}', encoding="utf-8"
    ),
    "weights cut": _weights(lambda data: data[: len(data) // 2]),
    "weights empty": _weights(lambda data: b""),
    "weights of 2^60 names": _weights(lambda data: struct.pack("<Q", 2**60) + data[8:]),
    "weights of 10^15": _weights(_claim),
    "weights are a pickle": _weights(lambda data: b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR."),
}
RUNS: dict[str, Callable[[Path, Path], object]] = {
    _UNTOUCHED: lambda folder, victim: None,
    "left bundle": _link(".bundle.1.tmp"),
    "checkpoints": _link("checkpoints"),
    "lock": _link(".lock", "best-0099.pt"),
    "curves": _link("curves.png", "best-0099.pt"),
    "history": _link("history.csv", "best-0099.pt"),
    "bundle": _link("bundle"),
    "logs": _link("logs"),
    "aliases": _alias_bomb,
    "nested run.json": lambda folder, victim: (folder / "run.json").write_text("[" * _DEEP, encoding="utf-8"),
    "empty checkpoint": lambda folder, victim: (folder / "checkpoints" / "last.pt").write_bytes(b""),
    "checkpoint is a pickle": lambda folder, victim: (folder / "checkpoints" / "last.pt").write_bytes(
        b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR."
    ),
    "empty split": lambda folder, victim: (folder / "split.csv").write_bytes(b""),
}
