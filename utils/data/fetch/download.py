"""Download a file: the only code that opens a connection to the outside.

What was downloaded so far is in NAME.part. Where the list has size and hash, the next command asks
only for the rest; the hash says whether both parts are of one file.
"""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from pathlib import Path
from typing import BinaryIO

from utils.data.fetch.lists import MAX_BYTES, Item
from utils.errors import UserError
from utils.files.regular import open_regular
from utils.screen.progress import Progress
from utils.screen.text import printable

TIMEOUT_S = 30.0  # without a byte
_BLOCK_BYTES = 1 << 20
_CUTS = (http.client.HTTPException, urllib.error.URLError, ConnectionError, TimeoutError,
         ValueError, OverflowError)  # fmt: skip  # the last two of broken lengths


def download(item: Item, part: Path) -> str:
    """Fetch a file into `part`, or the rest of it; return its SHA-256.

    Raises:
        UserError: the server does not have it, or other bytes than the list says, or the
            connection failed. What came stays, unless it is wrong.
        OSError: it cannot be written.
    """
    with open(part, "ab") as file:
        try:
            _fetch_rest(item, file)
        except UserError:
            raise
        except _CUTS as error:
            raise UserError(
                f"{item.url}: {printable(f'{error!s:.200}')}; what came is kept: start again to "
                "continue, or correct the address in the list"
            ) from error
    digest = hash_of(part)
    if item.sha256 not in (None, digest):
        part.unlink()
        raise UserError(
            f"{item.url}: its SHA-256 is {digest}, and the list says {item.sha256}; what came was "
            "removed. Start again once if an earlier download was continued; else the file on the "
            "server was replaced or damaged, or the list is wrong"
        )
    return digest


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _fetch_rest(item: Item, file: BinaryIO) -> None:
    start = file.tell() if item.sha256 and item.size else 0
    if start and start >= (item.size or 0):
        return  # whole already; the hash judges it
    headers = {"User-Agent": "duet-fetch"} | ({"Range": f"bytes={start}-"} if start else {})
    request = urllib.request.Request(item.url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        if item.sha256 is None and not answer.url.startswith("https:"):
            text = f"redirects to {answer.url}, which needs a 'sha256' in the list"
            raise UserError(f"{item.url}: {text}")
        is_rest = answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        file.truncate(start if is_rest else 0)
        _append(item, answer, file)


def _append(item: Item, answer: http.client.HTTPResponse, file: BinaryIO) -> None:
    done = file.seek(0, 2)
    size = item.size or (None if answer.length is None else done + answer.length)
    if size is None and item.sha256 is None:
        text = "neither the list nor the server gives its size; write it into the list"
        raise UserError(f"{item.url}: {text}")
    mib = None if size is None else -(-size // _BLOCK_BYTES)
    with Progress(mib, f"fetching {item.name}", "MiB", done // _BLOCK_BYTES) as progress:
        while block := answer.read(_BLOCK_BYTES):
            done += file.write(block)
            progress.update()
            if done > (size or MAX_BYTES):
                file.truncate(0)
                text = f"the server sends more than {size or MAX_BYTES:,} bytes; correct the list"
                raise UserError(f"{item.url}: {text}")
    if size is not None and done < size:
        raise ConnectionError(f"the connection ended after {done:,} of {size:,} bytes")
