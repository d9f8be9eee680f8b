"""The image in a form, as browsers and `curl -F` send it.

Before: `uploads.py`, with the whole body. After: `app.py`.
"""

from __future__ import annotations

from python_multipart.multipart import parse_options_header

from utils.errors import brief
from utils.serve.failures import RequestError, bad_request

FORM = b"multipart/form-data"
ENVELOPE_BYTES = 1 << 16  # of a form around its image, at most
_HEAD_BYTES = 4096  # of a field
_MOST_BOUNDARY = 70
_ONE_FILE = "send one file, as in curl -F image=@FILE; thresholds go into the query"


def is_form(content_type: str) -> bool:
    """Whether the body of a request is a form, by its Content-Type."""
    return parse_options_header(content_type)[0].strip().lower() == FORM


def image_of_form(content_type: str, body: bytes) -> bytes:
    """Return the file in a form.

    It takes two searches, whatever the body holds; a parser that stops at all that may be a
    boundary takes seconds for some.

    Args:
        content_type: the header, which names the boundary of the parts.

    Raises:
        RequestError: no form, or one that has another number of files than one.

    Source: RFC 2046, section 5.1.1: no line of the content begins as the boundary does.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    if not 0 < len(boundary) <= _MOST_BOUNDARY:
        raise _unreadable("its Content-Type names no boundary of at most 70 characters")
    opening, limit = b"--" + boundary, b"\r\n--" + boundary
    if not body.startswith(opening):
        raise _unreadable("it does not begin with its boundary")
    if body.startswith(b"--", len(opening)):
        raise bad_request(f"the form is empty; {_ONE_FILE}")
    head_end = body.find(b"\r\n\r\n", len(opening), len(opening) + _HEAD_BYTES)
    if head_end < 0:
        raise _unreadable(f"its field has no head of at most {_HEAD_BYTES:,} bytes")
    start = head_end + len(b"\r\n\r\n")
    end = body.find(limit, start)
    if end < 0:
        raise bad_request(f"the form is cut off; {_ONE_FILE}")
    if not body.startswith(b"--", end + len(limit)):
        raise bad_request(f"the form has more than one field; {_ONE_FILE}")
    _require_file(body[len(opening) : head_end])
    return body[start:end]


def _require_file(head: bytes) -> None:
    """Raise RequestError if the head of a field names no file."""
    lines = (line.partition(b":") for line in head.split(b"\r\n"))
    headers = {name.strip().lower(): value.strip() for name, _, value in lines}
    disposition = headers.get(b"content-disposition", b"")
    _, options = parse_options_header(disposition.decode("latin-1"))
    if b"filename" not in options:
        name = brief(options.get(b"name", b"").decode("utf-8", "replace"))
        raise bad_request(f"the form field {name} is no file; {_ONE_FILE}")


def _unreadable(reason: str) -> RequestError:
    return bad_request(f"the form cannot be read: {reason}; {_ONE_FILE}")
