"""The image in a form, as browsers and `curl -F` send it.

Before: `uploads.py`, with the whole body. After: `app.py`.
"""

from __future__ import annotations

import logging

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from utils.errors import brief
from utils.serve.failures import bad_request

FORM = b"multipart/form-data"
ENVELOPE_BYTES = 1 << 16  # of a form around its image, at most
_ONE_FILE = "send one file, as in curl -F image=@FILE; thresholds belong into the query"

logging.getLogger("python_multipart.multipart").setLevel(logging.ERROR)  # it warns of each body


class _OneFile:
    """What a parser calls with the parts of a form, of which one may be."""

    def __init__(self) -> None:
        self.header = [b"", b""]  # name and value, as far as they are read
        self.headers: dict[bytes, bytes] = {}
        self.content, self.parts, self.is_whole = bytearray(), 0, False

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._add(0, data[start:end]),
            "on_header_value": lambda data, start, end: self._add(1, data[start:end]),
            "on_header_end": self._end_header,
            "on_part_data": self._extend,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self.parts += 1
        if self.parts > 1:
            raise bad_request(f"the form has more than one field; {_ONE_FILE}")

    def _add(self, index: int, part: bytes) -> None:
        self.header[index] += part

    def _end_header(self) -> None:
        name, value = self.header
        self.headers[name.lower()] = value
        self.header = [b"", b""]

    def _extend(self, data: bytes, start: int, end: int) -> None:
        self.content += memoryview(data)[start:end]

    def _end(self) -> None:
        self.is_whole = True

    def require_file(self) -> bytes:
        """Return the content; raise RequestError for a form that is cut off, or has no file."""
        if not self.is_whole:
            raise bad_request(f"the form is cut off; {_ONE_FILE}")
        if not self.parts:
            raise bad_request(f"the form is empty; {_ONE_FILE}")
        disposition = self.headers.get(b"content-disposition", b"")
        _, options = parse_options_header(disposition.decode("latin-1"))
        if b"filename" not in options:
            name = brief(options.get(b"name", b"").decode("utf-8", "replace"))
            raise bad_request(f"the form field {name} is no file; {_ONE_FILE}")
        return bytes(self.content)


def is_form(content_type: str) -> bool:
    """Whether the body of a request is a form, by its Content-Type."""
    return parse_options_header(content_type)[0].strip().lower() == FORM


def image_of_form(content_type: str, body: bytes) -> bytes:
    """Return the file in a form.

    Args:
        content_type: the header, which names the boundary of the parts.

    Raises:
        RequestError: no form, or one that has another number of files than one.
    """
    _, options = parse_options_header(content_type)
    found = _OneFile()
    try:
        parser = MultipartParser(options.get(b"boundary", b""), found.callbacks())  # type: ignore[arg-type]
        parser.write(body)
    except FormParserError as error:
        raise bad_request(f"the form cannot be read: {brief(str(error))}; {_ONE_FILE}") from error
    return found.require_file()
