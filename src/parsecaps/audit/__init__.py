"""How far explanations can be trusted."""

from parsecaps.audit.measure import audit, audit_model
from parsecaps.audit.result import Audit

__all__ = ["Audit", "audit", "audit_model"]
