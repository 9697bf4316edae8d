"""The JSON schema of explanation documents, written from its models.

python -m tests.report.make_schema
"""

import json
from pathlib import Path

from parsecaps.report.explanation_document import ExplanationDocument

SCHEMA = Path(__file__).parents[2] / "docs" / "explanation-schema.json"


def explanation_schema() -> str:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **ExplanationDocument.model_json_schema()}
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(explanation_schema(), encoding="utf-8")
