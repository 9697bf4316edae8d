"""A model in every form its users expect, one file for each format; `formats` lists them."""

from parsecaps.export.export import export_model, formats

__all__ = ["export_model", "formats"]
