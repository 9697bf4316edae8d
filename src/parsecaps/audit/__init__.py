"""How far explanations can be trusted."""

from parsecaps.audit.result import Audit
from parsecaps.audit.run import audit, audit_model

__all__ = ["Audit", "audit", "audit_model"]
