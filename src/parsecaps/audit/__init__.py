"""How far explanations can be trusted."""
