"""What a request asks, and who may ask.

Its query, the kind of answer, and the image in its body; bearer tokens (RFC 6750), and of browsers
only the server's own page.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from duet.utils.cli.flags import flags_of
from duet.utils.detect.config import DetectConfig
from duet.utils.errors import UserError, brief
from duet.utils.regular_files import read_text

OPEN_PATHS = ("/", "/healthz", "/readyz")  # without a token
MAX_TOKEN_BYTES = 1 << 16
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]", "")
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")  # fewer characters could be guessed
SWITCHES = {"true": True, "1": True, "false": False, "0": False}
# Of the query: how a value is read, what is accepted, and the field of detect.py that checks it.
PARAMETERS: Mapping[str, tuple[Any, str, str]] = {
    "model": (str, "a name is needed", ""),
    "conf": (float, "a number from 0 to 1 is needed", "confidence_threshold"),
    "iou": (float, "a number from 0 to 1 is needed", "iou_threshold"),
    "max_det": (int, "a whole number is needed", "max_detections"),
    "classes": (lambda text: list(map(int, text.split(","))), "numbers as in 0,2 are needed", ""),
    "agnostic": (SWITCHES.__getitem__, "accepted: true, false", ""),
}


class RequestError(HTTPException):
    """Why a request is refused.

    Attributes:
        code: a word that a program may act on; it does not change between versions.
    """

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, headers)
        self.code = code


def bad_request(message: str) -> RequestError:
    """Return the error for a mistake in the request."""
    return RequestError(400, "bad_request", message)


def read_query(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the values of a query by name; RequestError for one that is not accepted."""
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in PARAMETERS:
            known = ", ".join(PARAMETERS)
            raise bad_request(f"{brief(name)} is no query parameter; accepted: {known}")
        if name in values:
            raise bad_request(f"{name} stands twice in the query; give it once")
        values[name] = _value(name, text)
    return values


def _value(name: str, text: str) -> Any:
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
    """Return the kind of answer: the first picture that an Accept header names, else "json"."""
    named = re.search(r"image/(jpeg|png)", accept.lower())
    return named[1] if named else "json"


async def read_image(request: Request, max_bytes: int) -> bytes:
    """Return the image file in the body of a request, which may be a form.

    Raises:
        HTTPException: it is too large, there is none, or a form cannot be read.
    """
    num_bytes = 0
    text = f"the body is larger than {max_bytes:,} bytes; send a smaller image, or raise "
    too_large = RequestError(413, "too_large", text + "--max-bytes of the server")

    async def receive_within_limit() -> Message:
        nonlocal num_bytes
        message = await request.receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > max_bytes:
            raise too_large
        return message

    if int(request.headers.get("content-length", "0")) > max_bytes:
        raise too_large
    limited = Request(request.scope, receive_within_limit)
    is_form = request.headers.get("content-type", "").lower().startswith("multipart/form-data")
    image = await (_image_of_form(limited) if is_form else limited.body())
    if not image:
        raise bad_request("there is no image; send a file, as in --data-binary @FILE")
    return image


async def _image_of_form(request: Request) -> bytes:
    async with request.form(max_files=1, max_fields=1) as form:
        match list(form.values()):
            case [UploadFile() as file]:
                return await file.read()
        raise bad_request("send a form with one file alone, as in curl -F image=@FILE")


def read_tokens(path: Path | None) -> tuple[str, ...]:
    """Return the tokens of a file, one per line; () for None.

    Raises:
        UserError: it cannot be read, or a line is no token; the text shows none.
    """
    if path is None:
        return ()
    make_one = "`openssl rand -hex 32 > FILE` makes one"
    try:
        tokens = tuple(read_text(path, MAX_TOKEN_BYTES).split())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise UserError(f"--token-file {path}: {reason}; {make_one}") from error
    if not tokens or not all(map(TOKEN.fullmatch, tokens)):
        raise UserError(
            f"--token-file {path}: each line must be a token of 16 characters or more, letters, "
            f"digits and ._~+/-; {make_one}"
        )
    return tokens


def check_access(
    path: str, headers: Mapping[str, str], tokens: Sequence[str], name: str | None
) -> None:
    """Raise RequestError for a request that may not be answered.

    Args:
        tokens: one of them is needed, if there are any.
        name: what the server may be called beside the loopback's names; None for any. A page of
            another site could point its own name to the loopback, and read the answers.
    """
    host = headers.get("host", "")
    if name is not None and re.sub(r":\d*$", "", host).lower() not in (*LOOPBACK_NAMES, name):
        text = "this server answers to localhost; --token-file or --insecure opens it to others"
        raise RequestError(421, "wrong_host", text)
    if path in OPEN_PATHS:
        return
    origin = headers.get("origin")  # "null" for a page of no site, such as a file
    if name is not None and origin is not None and origin.partition("://")[2] != host:
        text = "a page of another site sent this request; open the page of this server instead"
        raise RequestError(403, "foreign_page", text)
    scheme, _, given = headers.get("authorization", "").partition(" ")
    known = [hmac.compare_digest(given.strip().encode(), token.encode()) for token in tokens]
    if tokens and not (scheme.lower() == "bearer" and any(known)):
        what = "is not known" if given else "is needed"
        text = f"the token {what}; send it as `Authorization: Bearer TOKEN`"
        raise RequestError(401, "unauthorized", text, {"WWW-Authenticate": "Bearer"})
