"""A connection to a server: one file, asked for by its address, from a byte on.

Before: `download.py` says which. After: it reads the answer. No other code of the project opens a
connection to the outside (`tests/structure/test_connections.py`).
"""

from __future__ import annotations

import http.client
import ssl
import urllib.request

from utils.data.fetch.address import led_on
from utils.errors import UserError, brief
from utils.screen.text import printable

TIMEOUT_S = 30.0  # without a byte
MAX_REDIRECTS = 5
WHOLE, PARTIAL = 200, 206
_HEADERS = {"User-Agent": "duet-fetch", "Accept-Encoding": "identity"}
_LEADS_ON = {301, 302, 303, 307, 308}
# The server may do better in a while, or, of a wrong range, when asked from the start.
_LATER = {408, 416, 425, 429, 500, 502, 503, 504}


class CutError(Exception):
    """The connection failed, but a later try may succeed; the text says how it failed."""


def ask(url: str, start: int = 0, validator: str = "") -> http.client.HTTPResponse:
    """Ask for a file and return the answer: 200 with all of it, or 206 with that from `start` on.

    A few redirects are followed, also to other servers.

    Args:
        start: the first byte that is wanted.
        validator: an ETag or a time: if it is no longer that of the file, all of it comes.

    Raises:
        CutError: it may work later.
        UserError: the server does not have it, or redirects in a way that is not followed.
    """
    headers = dict(_HEADERS)
    if start:
        headers["Range"] = f"bytes={start}-"
        if validator:
            headers["If-Range"] = validator
    found = url
    for _ in range(MAX_REDIRECTS + 1):
        answer = _open(urllib.request.Request(found, headers=headers))
        if answer.status in (WHOLE, PARTIAL):
            return _unencoded(url, answer)
        with answer:
            if answer.status not in _LEADS_ON:
                raise _failure(url, answer)
            found = led_on(found, answer.headers.get("Location"))
    raise UserError(f"{url}: redirects more than {MAX_REDIRECTS} times, last to {brief(found)}")


def _open(request: urllib.request.Request) -> http.client.HTTPResponse:
    """Send a request over http or https, through the proxy of the environment if it names one."""
    opener = urllib.request.OpenerDirector()  # by itself it opens nothing: no file:, ftp: or data:
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
    ):
        opener.add_handler(handler)
    try:
        answer: http.client.HTTPResponse = opener.open(request, timeout=TIMEOUT_S)
    except (http.client.HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            text = f"{request.full_url}: no valid certificate of the server: {brief(str(reason))}"
            raise UserError(text) from error
        raise CutError(in_words(reason)) from error
    return answer


def in_words(error: object) -> str:
    """Return what went wrong with a connection, in a few words that a server may have chosen."""
    return printable(f"{getattr(error, 'strerror', None) or error!s:.200}")


def _unencoded(url: str, answer: http.client.HTTPResponse) -> http.client.HTTPResponse:
    encoding = answer.headers.get("Content-Encoding", "identity")
    if encoding == "identity":
        return answer
    answer.close()
    raise UserError(f"{url}: has the content encoding {brief(encoding)}, which is not accepted")


def _failure(url: str, answer: http.client.HTTPResponse) -> Exception:
    text = f"the server answers {answer.status} {printable(answer.reason[:80])}"
    if answer.status in _LATER:
        return CutError(text)
    return UserError(f"{url}: {text}; correct the address in the list, or fetch it by hand")
