"""Errors as answers: an HTTP status, a code for programs, and a sentence.

Before: whatever finds the mistake. After: `app.py` makes the answer of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from utils.screen.text import printable


class RequestError(Exception):
    """Why a request is refused.

    Attributes:
        status: of HTTP.
        code: a word that a program may act on; it does not change between versions.
        headers: what the status asks for besides, as Retry-After.
    """

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, dict(headers or {})

    @property
    def body(self) -> bytes:
        """The answer's JSON."""
        return error_body(self.code, str(self))


def error_body(code: str, message: str) -> bytes:
    """Return the JSON that every error is answered with."""
    error = {"code": code, "message": printable(message)}
    return json.dumps({"error": error}, ensure_ascii=False).encode()


def bad_request(message: str) -> RequestError:
    """Return the error for a request that no server could understand."""
    return RequestError(400, "bad_request", message)
