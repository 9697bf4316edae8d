"""The phantom: pictures of skin lesions, drawn by rule, of which everything is known.

What is drawn, and the rule of the diagnosis, stand in `docs/phantom.md`.
"""

from parsecaps.data.phantom.checklist import CLASSES, CONCEPTS, Cases, case_table, diagnose, score
from parsecaps.data.phantom.draw import PhantomBatch, draw

__all__ = ["CLASSES", "CONCEPTS", "Cases", "PhantomBatch", "case_table", "diagnose", "draw", "score"]
