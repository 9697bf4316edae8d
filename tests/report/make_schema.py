"""The JSON schema of explanation documents, written from its models.

python -m tests.report.make_schema
"""

from pathlib import Path

from parsecaps.report.explanation_document import explanation_schema

SCHEMA = Path(__file__).parents[2] / "docs" / "explanation-schema.json"

if __name__ == "__main__":
    SCHEMA.write_text(explanation_schema(), encoding="utf-8")
