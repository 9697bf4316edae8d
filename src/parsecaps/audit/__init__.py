"""How far explanations can be trusted."""

from parsecaps.audit.run import Audit, audit, audit_model

__all__ = ["Audit", "audit", "audit_model"]
