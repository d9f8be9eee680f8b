"""Bearer tokens: a request must carry one of those in a file.

Source: RFC 6750.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

from utils.errors import UserError
from utils.files.regular import read_text
from utils.serve.failures import RequestError

MAX_FILE_BYTES = 1 << 16
SHORTEST = 16  # characters: fewer could be guessed
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_MAKE_ONE = "`openssl rand -hex 32 > FILE` makes one"


class Tokens:
    """The tokens of a server; without any, every request is accepted."""

    def __init__(self, tokens: tuple[str, ...] = ()) -> None:
        self._digests = [_digest(token.encode()) for token in tokens]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def require(self, authorization: bytes) -> None:
        """Raise RequestError unless an Authorization header carries one of the tokens.

        It takes as long for a wrong token as for a right one.
        """
        scheme, _, given = authorization.partition(b" ")
        digest = _digest(given.strip())
        same = [hmac.compare_digest(digest, known) for known in self._digests]
        if scheme.lower() != b"bearer" or not any(same):
            what = "is not known" if given else "is needed"
            raise RequestError(
                401,
                "unauthorized",
                f"the token {what}; send it as `Authorization: Bearer TOKEN`",
                {"WWW-Authenticate": "Bearer"},
            )


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()  # all of one length


def read_tokens(path: Path | None) -> Tokens:
    """Return the tokens of a file, one per line; None: there are none.

    Raises:
        UserError: it cannot be read, or holds what can be no token; the text shows none.
    """
    if path is None:
        return Tokens()
    try:
        lines = read_text(path, MAX_FILE_BYTES).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise UserError(f"--token-file {path}: {reason}; {_MAKE_ONE}") from error
    tokens = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    for number, token in tokens:
        if len(token) < SHORTEST or not _TOKEN.fullmatch(token):
            raise UserError(
                f"--token-file {path}, line {number}: a token has {SHORTEST} characters or more, "
                f"letters, digits and ._~+/-; {_MAKE_ONE}"
            )
    if not tokens:
        raise UserError(f"--token-file {path} holds no token; {_MAKE_ONE}")
    return Tokens(tuple(token for _, token in tokens))
