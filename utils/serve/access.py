"""Who may ask: bearer tokens (RFC 6750), and of browsers only the server's own page."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from utils.errors import UserError
from utils.files.regular import read_text
from utils.serve.requests import RequestError

OPEN_PATHS = ("/", "/healthz", "/readyz")  # without a token
MAX_FILE_BYTES = 1 << 16
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]", "")
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")  # fewer characters could be guessed


def read_tokens(path: Path | None) -> tuple[str, ...]:
    """Return the tokens of a file, one per line; () for None.

    Raises:
        UserError: it cannot be read, or a line is no token; the text shows none.
    """
    if path is None:
        return ()
    make_one = "`openssl rand -hex 32 > FILE` makes one"
    try:
        tokens = tuple(read_text(path, MAX_FILE_BYTES).split())
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
