"""Templates to pages that need nothing but themselves."""

import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def plain_markdown(text: object) -> str:
    r"""Text as it is, on one line, whatever signs of Markdown or HTML are in it.

    >>> plain_markdown("a|b <i> [x](y)")
    'a\\|b \\<i\\> \\[x\\](y)'
    """
    return re.sub(r"([\\`*_|<>\[\]#~])", r"\\\1", " ".join(str(text).split()))


def render(template: str, **content: Any) -> str:
    """Fill a template of `report/templates`; text in HTML is escaped, an unknown name is an error.

    Markdown has the filter `plain` for text that someone else chose.
    """
    return _environment().get_template(template).render(**content)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("parsecaps.report"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["plain"] = plain_markdown
    return environment
