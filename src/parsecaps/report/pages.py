"""Templates to pages that need nothing but themselves."""

from typing import Any


def render(template: str, **content: Any) -> str:
    """Fill a template of `report/templates`; text is escaped, an unknown name is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("parsecaps.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**content)
