"""The numbers that a page shows of its open case, whoever computed them: a file, a server or the page itself."""

import json
import re
from typing import Any


def shown_numbers(tab: Any) -> dict[str, Any]:
    """What a reader sees: the diagnosis, the probabilities in percent, and the presence of each concept."""
    case = tab.locator(".case:not(.closed)")
    chances = case.locator(".chances li").all()
    targets = case.locator(".target:has(.track)").all()
    return {
        "diagnosis": case.locator(".answer strong").inner_text(),
        "probabilities": {
            each.locator("span").first.inner_text(): float(each.locator(".number").inner_text().rstrip(" %"))
            for each in chances
        },
        "presence": {
            each.locator(".words > span").first.inner_text(): float(
                re.findall(r"presence ([\d.]+)", each.inner_text())[0]
            )
            for each in targets
        },
        "sentence": case.locator(".flip").inner_text(),
    }


def intervene(tab: Any, settings: dict[str, str]) -> list[float]:
    """Set concepts of the open case, by name, to "present" or "absent": the probabilities that follow."""
    case = tab.locator(".case:not(.closed)")
    for concept, setting in settings.items():
        case.get_by_label(f"Set {concept} to", exact=True).select_option(setting)
    chances = json.loads(case.locator(".what-if").get_attribute("data-probabilities"))
    case.get_by_role("button", name="Back to what the model saw").click()
    return [float(each) for each in chances]
