"""The possible names of an image file on disk, by the place where Label Studio keeps its copy.

Before: `label_studio.py`. After: `image_names.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import unquote

_UPLOADED = re.compile(r"^[0-9a-f]{8}-(?=.)")  # put before the name of a file that is uploaded
_UPLOADS = re.compile(r"^(.*/)?data/upload/(\d+/)?", re.DOTALL)  # Label Studio's own folders
_NOT_KEPT = re.compile(r"[^-\w.]")  # characters that are removed then


def names_of(source: str) -> Iterator[PurePosixPath]:
    """Yield what the file of an image may be called; a name may have any character.

    Args:
        source: "/data/upload/1/0123abcd-name.jpg", "/data/local-files/?d=folder/name.jpg",
            "s3://bucket/name.jpg", "https://host/name.jpg?X-Amz=..." and the like.
    """
    text = (source.partition("?d=")[2] or source).replace("\\", "/").replace("\0", "")
    cut = text.partition("?")[0]
    for form in dict.fromkeys((text, unquote(text), cut, unquote(cut))):
        name = PurePosixPath(_UPLOADS.sub("", form))
        yield name
        if (plain := _UPLOADED.sub("", name.name)) != name.name:
            yield PurePosixPath(*name.parts[:-1], plain)


def as_uploaded(name: str) -> str:
    """Return the name of an uploaded file without the prefix that Label Studio adds."""
    return _NOT_KEPT.sub("", name.strip().replace(" ", "_"))
