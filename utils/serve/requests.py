"""Parsing requests, and access control.

Access is by bearer tokens (RFC 6750); browsers may send requests only from the server's own page.
"""

import hmac
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from duet.utils.cli.flags import flags_of
from duet.utils.cli.run_config import class_of
from duet.utils.detect.config import DetectConfig
from duet.utils.errors import UserError, brief
from duet.utils.files.regular import read_text

OPEN_PATHS = ("/", "/healthz", "/readyz")  # without a token
MAX_TOKEN_BYTES = 1 << 16
LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|\[::1\]|")  # no other site has such a name
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")  # shorter ones could be guessed
SWITCHES = {"true": True, "1": True, "false": False, "0": False}
# Query parameters: the parser, the accepted values, and the DetectConfig field that checks it.
PARAMETERS: Mapping[str, tuple[Any, str, str]] = {
    "model": (str, "accepted: a name", ""),
    "conf": (float, "accepted: a number from 0 to 1", "confidence_threshold"),
    "iou": (float, "accepted: a number from 0 to 1", "iou_threshold"),
    "max_det": (int, "accepted: a whole number", "max_detections"),
    "classes": (lambda text: list(map(class_of, text.split(","))), "", ""),  # of the model
    "agnostic": (SWITCHES.__getitem__, "accepted: true, false", ""),
}


class RequestError(HTTPException):
    """The reason for refusing a request.

    Attributes:
        code: a stable identifier for client programs.
    """

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, headers)
        self.code = code


def bad_request(message: str) -> RequestError:
    return RequestError(400, "bad_request", message)


def read_query(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Parse a query; RequestError for an invalid value."""
    values: dict[str, object] = {}
    for name, text in pairs:
        if name not in PARAMETERS:
            known = ", ".join(PARAMETERS)
            raise bad_request(f"unknown query parameter {brief(name)}; accepted: {known}")
        if name in values:
            raise bad_request(f"the query parameter {name} appears twice; send it once")
        values[name] = _value(name, text)
    return values


def _value(name: str, text: str) -> object:
    read, needed, field = PARAMETERS[name]
    try:
        value = read(text)
        check = flags_of(DetectConfig)[field].check if field else None
        if check is not None:
            check(name, value)
        return value
    except UserError as error:
        raise bad_request(str(error)) from error
    except (ValueError, LookupError) as error:
        raise bad_request(f"{name} {brief(text)}; {needed}") from error


def answer_kind(accept: str) -> str:
    """Return the answer format: the first image type in an Accept header, else "json"."""
    named = re.search(r"image/(jpeg|png)", accept.lower())
    return named[1] if named else "json"


class Room:
    def __init__(self, num_bytes: int) -> None:
        self._free = num_bytes

    @contextmanager
    def held(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that takes bytes until the end of the block."""
        taken = 0

        def take(num_bytes: int) -> None:
            nonlocal taken
            if num_bytes > self._free:
                text = "the server holds too many images; try again later"
                raise RequestError(429, "queue_full", text, {"Retry-After": "1"})
            self._free -= num_bytes
            taken += num_bytes

        try:
            yield take
        finally:
            self._free += taken


async def read_image(request: Request, max_bytes: int, take: Callable[[int], None]) -> bytes:
    """Return the image file in a request's body, which may be a form; HTTPException otherwise.

    take: called with the size of each part that arrives, see `Room`.
    """
    num_bytes = 0
    text = f"the body is larger than {max_bytes:,} bytes; send a smaller image, or raise the "
    too_large = RequestError(413, "too_large", text + "server's --max-bytes")

    async def receive_within_limit() -> Message:
        nonlocal num_bytes
        message = await request.receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > max_bytes:
            raise too_large
        take(len(message.get("body", b"")))
        return message

    if int(request.headers.get("content-length", "0")) > max_bytes:
        raise too_large
    limited = Request(request.scope, receive_within_limit)
    is_form = request.headers.get("content-type", "").lower().startswith("multipart/form-data")
    image = await (_image_of_form(limited) if is_form else limited.body())
    if not image:
        raise bad_request("the body is empty; send an image, for example with --data-binary @FILE")
    return image


async def _image_of_form(request: Request) -> bytes:
    try:
        async with request.form(max_files=1, max_fields=1) as form:
            match list(form.values()):
                case [UploadFile() as file]:
                    return await file.read()
            raise bad_request("the form needs exactly one file, for example curl -F image=@FILE")
    except FormParserError as error:  # from Starlette before 1.8
        raise bad_request(f"the form cannot be read: {error}") from error


def read_tokens(path: Path | None) -> tuple[str, ...]:
    """Read tokens, one per line; () for None; UserError messages never show a token."""
    if path is None:
        return ()
    make_one = "create one with `openssl rand -hex 32 > FILE`"
    try:
        tokens = tuple(read_text(path, MAX_TOKEN_BYTES).split())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UserError(f"--token-file {path}: {reason}; {make_one}") from error
    if not tokens or not all(map(TOKEN.fullmatch, tokens)):
        raise UserError(
            f"--token-file {path}: each line must be a token of at least 16 letters, digits or "
            f"._~+/-; {make_one}"
        )
    return tokens


def check_access(
    path: str, headers: Mapping[str, str], tokens: Sequence[str], name: str | None
) -> None:
    """Raise RequestError for a request without access.

    Args:
        tokens: the accepted tokens; empty for access without one.
        name: the host name to accept besides loopback names; None for any. Another site could
            point its own name to the loopback address and read the answers (DNS rebinding).
    """
    host = headers.get("host", "")
    asked = re.sub(r":\d*$", "", host).lower()
    if name is not None and asked != name.lower() and not LOOPBACK.fullmatch(asked):
        text = "this server only accepts localhost; allow others with --token-file or --insecure"
        raise RequestError(421, "wrong_host", text)
    if path in OPEN_PATHS:
        return
    origin = headers.get("origin")  # "null" for a page without a site, such as a file
    if name is not None and origin is not None and origin.partition("://")[2] != host:
        text = "this request came from another site's page; use the page of this server instead"
        raise RequestError(403, "foreign_page", text)
    scheme, _, given = headers.get("authorization", "").partition(" ")
    known = [hmac.compare_digest(given.strip().encode(), token.encode()) for token in tokens]
    if tokens and not (scheme.lower() == "bearer" and any(known)):
        what = "unknown token" if given else "a token is required"
        text = f"{what}; send it as `Authorization: Bearer TOKEN`"
        raise RequestError(401, "unauthorized", text, {"WWW-Authenticate": "Bearer"})
