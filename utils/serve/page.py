"""The page at `/`: one file, and the policy under which a browser runs it.

Before: `page.html`. After: `app.py`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import NamedTuple

from utils.files.project import PROJECT
from utils.files.regular import read_text

PAGE = PROJECT / "utils" / "serve" / "page.html"


class Page(NamedTuple):
    """A page and its headers."""

    content: bytes
    headers: dict[str, str]


def read_page() -> Page:
    """Return the page of a server."""
    text = read_text(PAGE)
    policy = {
        "default-src": "'none'",
        "script-src": _hashes(text, "script"),
        "style-src": _hashes(text, "style"),
        "img-src": "blob: data:",
        "media-src": "blob:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    headers = {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    }
    return Page(text.encode(), headers)


def _hashes(text: str, element: str) -> str:
    """Return the sources that allow the elements of a kind that stand in the page, and no other.

    Source: Content Security Policy Level 3, "Does element match source list".
    """
    parts = re.findall(rf"<{element}\b[^>]*>(.*?)</{element}>", text, re.DOTALL)
    digests = (hashlib.sha256(part.encode()).digest() for part in parts)
    return " ".join(f"'sha256-{base64.b64encode(d).decode()}'" for d in digests) or "'none'"
