"""What `parsecaps discover` prints: a row for each concept, and what holds for all of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from parsecaps.discovery.discover import DiscoveredConcept, Discovery
from parsecaps.discovery.stability import Stability
from parsecaps.report.terminal import plain_table

if TYPE_CHECKING:
    from rich.table import Table


def discovery_table(found: Discovery) -> "Table":
    """The concepts of a run; columns that say nothing of any are left out."""
    from rich.markup import escape

    purity = any(each.purity for each in found.concepts)
    overlap = any(each.overlap for each in found.concepts)
    columns = ["concept", "presence"]
    columns += ["strongest patients\n(chance, p)"] if purity else []
    columns += ["map in mask\n(mask's share)", "points\nat it"] if overlap else []
    columns += ["found again\n(chance, by class)"] if found.stability else []
    table = plain_table(f"{len(found.concepts)} concepts of {escape(str(found.run))}", *columns, "remark")
    table.columns[-1].justify = "left"
    for column in (table.columns[0], table.columns[-1]):  # names may be long
        column.no_wrap, column.overflow = False, "fold"
    for each in found.concepts:
        cells = [escape(each.name), f"{each.mean:.2f} ± {each.std:.2f}"]
        cells += [escape(_purity(each))] if purity else []
        cells += _overlap(each) if overlap else []
        cells += [_again(each, found.stability)] if found.stability else []
        table.add_row(*cells, escape(remark(each)))
    return table


def discovery_lines(found: Discovery) -> Iterator[str]:
    """How many concepts there really are, and how far they are those of other runs."""
    dead, same = sum(each.dead for each in found.concepts), sum(each.duplicate for each in found.concepts)
    rest = f"{dead} hardly vary, {same} say the same as another"
    yield f"they vary as {found.effective:.1f} unrelated concepts would; {rest}"
    if found.stability is not None:
        stable = found.stability
        worst = max(match.p_value for match in stable.matches.values())
        others = ", ".join(each.name for each in found.others)
        yield (
            f"found again by {others}: correlation {stable.mean:.2f} on average, {stable.chance:.2f} with patients "
            f"exchanged (p at most {worst:.3f})"
        )


def remark(concept: DiscoveredConcept) -> str:
    """What stands in the way of naming a concept."""
    if concept.dead:
        return "hardly varies"
    if concept.duplicate and concept.closest is not None:
        return f"{'same as' if concept.closest[1] > 0 else 'opposite of'} {concept.closest[0]}"
    return ""


def _purity(concept: DiscoveredConcept) -> str:
    pure = concept.purity
    if pure is None:
        return "-"
    return f"{pure.share:.0%} {pure.label}\n({pure.chance:.0%}, {pure.p_value:.3f})"


def _overlap(concept: DiscoveredConcept) -> list[str]:
    over = concept.overlap
    return ["-", "-"] if over is None else [f"{over.inside:.0%}\n({over.share:.0%})", f"{over.pointing:.0%}"]


def _again(concept: DiscoveredConcept, stable: Stability) -> str:
    i = concept.index
    in_class = "" if stable.class_chances is None else f", {stable.class_chances[i]:.2f}"
    return f"{stable.by_concept[i]:.2f}\n({stable.chances[i]:.2f}{in_class})"
