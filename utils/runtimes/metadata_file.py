"""Metadata as one JSON text, for formats that keep it in a file beside the model.

Before: `metadata.py`. After: the converters of `utils/export/`, and their runtimes.
"""

from __future__ import annotations

import json

from utils.errors import UserError
from utils.files.json import parse_json
from utils.runtimes.metadata import Metadata, metadata_of

METADATA_FILE = "metadata.json"
MAX_METADATA_BYTES = 1 << 24


def metadata_as_json(metadata: Metadata) -> str:
    """Return an object of the fields, one a line."""
    fields = (f"{json.dumps(name)}: {text}" for name, text in metadata.texts().items())
    return "{\n" + ",\n".join(fields) + "\n}\n"


def metadata_of_json(content: str | bytes) -> Metadata:
    """Return what `metadata_as_json` wrote; UserError for another text."""
    try:
        fields = parse_json(content)
    except ValueError as error:
        raise UserError(f"its {METADATA_FILE} is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise UserError(f"its {METADATA_FILE} holds no object; export it with export.py")
    return metadata_of({name: json.dumps(value) for name, value in fields.items()})
