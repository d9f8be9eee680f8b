"""Metadata as one JSON text, for formats that keep it in a file next to the model.

Before: `metadata.py`. After: the converters of `utils/export/`, and their runtimes.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib

from utils.errors import UserError
from utils.files.json import parse_json
from utils.runtimes.metadata import Metadata, metadata_of

METADATA_FILE = "metadata.json"
MAX_METADATA_BYTES = 1 << 24
# What Python's zipfile raises on damaged archives, and for a name that is absent.
ZIP_ERRORS = (
    zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, OSError,
    struct.error, zlib.error, KeyError,
)  # fmt: skip


def metadata_as_json(metadata: Metadata) -> str:
    """Return an object of the fields, one per line."""
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


def metadata_in_zip(content: bytes, ending: str) -> Metadata:
    """Return what a file holds that is, or ends with, a zip archive.

    Args:
        ending: of the member's name.

    Raises:
        UserError: no archive, or no such member.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = (name for name in archive.namelist() if name.endswith(ending))
            with archive.open(next(names, ending)) as member:
                text = member.read(MAX_METADATA_BYTES)
    except ZIP_ERRORS as error:
        raise UserError("damaged, or it holds no metadata; export it with export.py") from error
    return metadata_of_json(text)
