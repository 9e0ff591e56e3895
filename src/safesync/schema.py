"""docs/verdict.schema.json, written from the models: `python -m safesync.schema`."""

from safesync.protocol.document import VERSION, VerdictDocument
from safesync.tables import write_document

PATH = "docs/verdict.schema.json"


def schema() -> dict:
    """Return the JSON Schema (draft 2020-12) of verdict.json."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "description": f"verdict.json of safesync, version {VERSION}",
        **VerdictDocument.model_json_schema(),
    }


if __name__ == "__main__":
    write_document(PATH, schema())
