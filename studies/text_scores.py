"""How well concepts are found in sentences with known answers: `python -m studies.text_scores FILE --part held_out`.

The file is YAML: `short_names` maps short names to concepts, and each part is a list of entries with `text`, and the
short names that are `present` and `absent` in it; all other concepts are unknown.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsecaps.text.finding import find_concepts
from parsecaps.text.lexicon import Lexicon, nearest


@dataclass(frozen=True, slots=True)
class TextScores:
    """Micro F1 over pairs of text and concept, for "present" and for "absent", and accuracy over all three answers."""

    texts: int
    pairs: int
    present_f1: float
    absent_f1: float
    accuracy: float
    mistakes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.texts} texts, {self.pairs} pairs of text and concept: F1 present {self.present_f1:.3f}, "
            f"absent {self.absent_f1:.3f}, accuracy over present/absent/unknown {self.accuracy:.3f}"
        )


def score(file: str | Path, part: str, lexicon: Lexicon) -> TextScores:
    """Find the concepts in a part of a file of sentences, and compare."""
    import yaml

    content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    if part not in content:
        raise ValueError(
            f"{file} has no part {part!r}{nearest(part, [key for key in content if key != 'short_names'])}"
        )
    short, entries = content["short_names"], content[part]
    texts = [entry["text"] for entry in entries]
    expected, found, mistakes = [], [], []
    for entry, findings in zip(entries, find_concepts(texts, lexicon), strict=True):
        right = {name: "unknown" for name in lexicon.names} | _answers(entry, short)
        given = {name: {1.0: "present", 0.0: "absent"}.get(value, "unknown") for name, value in findings.values.items()}
        expected += [right[name] for name in lexicon.names]
        found += [given[name] for name in lexicon.names]
        wrong = [
            f"{name} is {right[name]}, found {given[name]}" for name in lexicon.names if right[name] != given[name]
        ]
        if wrong:
            mistakes.append(f"{entry['text']!r}: {'; '.join(wrong)}")
    correct = sum(one == other for one, other in zip(expected, found, strict=True))
    return TextScores(
        len(texts),
        len(expected),
        _f1(expected, found, "present"),
        _f1(expected, found, "absent"),
        correct / len(expected),
        tuple(mistakes),
    )


def _answers(entry: dict[str, Any], short: dict[str, str]) -> dict[str, str]:
    return {short[key]: answer for answer in ("present", "absent") for key in entry.get(answer, "").split()}


def _f1(expected: Sequence[str], found: Sequence[str], answer: str) -> float:
    both = sum(one == other == answer for one, other in zip(expected, found, strict=True))
    return 2 * both / (expected.count(answer) + found.count(answer))


def main() -> None:
    """Print the scores of one part, and its mistakes if asked."""
    parser = argparse.ArgumentParser(description="Score the concepts found in sentences with known answers.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--part", default="held_out")
    parser.add_argument(
        "--mistakes", action="store_true", help="list them; a part you have looked at is held out no more"
    )
    options = parser.parse_args()
    scores = score(options.file, options.part, Lexicon.shipped("dermoscopy"))
    print(f"{options.part}: {scores}")
    if options.mistakes:
        print("\n".join(scores.mistakes))


if __name__ == "__main__":
    main()
