"""What a server reads: the query and the headers of requests, and tokens."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl

from tests.fuzz.reader import Reader
from utils.errors import UserError
from utils.serve.requests import (
    RequestError,
    answer_kind,
    check_access,
    read_query,
    read_tokens,
)


def read_words(path: Path) -> None:
    """Read the first line as a query, the second as a Host, the rest as an Accept header."""
    query, _, rest = path.read_bytes().decode("latin-1").partition("\n")
    host, _, accept = rest.partition("\n")
    try:
        read_query(parse_qsl(query, keep_blank_values=True))
        answer_kind(accept)
        check_access("/v1/detect", {"host": host, "origin": f"http://{host}"}, (), "127.0.0.1")
    except RequestError as error:
        raise UserError(str(error)) from error


SERVE_READERS = {
    "serve-query": Reader(
        read_words,
        lambda: [b"model=a&conf=0.25&iou=0.45&max_det=9&classes=0,2&agnostic=1\nlocalhost:8000\n"
                 b"image/png;q=0.9"],
        "query",
        (b"%ff", b"%00", b"&", b"=", b"conf=", b"nan", b"inf", b"1e999", b",", b";q=", b"*/*"),
    ),
    "serve-tokens": Reader(
        read_tokens,
        lambda: [b"0123456789abcdef\n0123456789abcdef-ABC_.~+/==\n"],
        "tokens",
        (b"\n", b"\r", b"\0", b"=", b"\x1b[31m", b"\xe2\x80\xae", b"\xc2\x85"),
    ),
}  # fmt: skip
