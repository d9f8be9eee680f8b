"""Addresses of files on servers, as lists and servers give them.

Before: a list, or a server that redirects. After: `lists.py`, `connection.py`.
"""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

from utils.errors import UserError, brief

MAX_LENGTH = 2000  # characters, as servers take them


def is_plain_url(text: str) -> bool:
    """Return whether a text is the http or https address of a file, without name or password."""
    if len(text) > MAX_LENGTH or not text.isascii() or not text.isprintable() or " " in text:
        return False
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # brackets that hold no address, or a port that is no number
        return False
    names_server = bool(parts.hostname) and port != 0 and "@" not in parts.netloc
    return parts.scheme in ("https", "http") and names_server


def led_on(url: str, location: str | None) -> str:
    """Return the address to which the server of another one redirects.

    Raises:
        UserError: it is not an address, or has a less safe scheme.
    """
    try:
        found = urljoin(url, location or "")
    except ValueError:
        found = ""
    schemes = (urlsplit(url).scheme, "https")
    if not location or not is_plain_url(found) or urlsplit(found).scheme not in schemes:
        raise UserError(
            f"{url} redirects to {brief(location)}; only redirects to "
            f"{' or '.join(set(schemes))} are followed"
        )
    return found
