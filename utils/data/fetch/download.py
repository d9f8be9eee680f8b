"""Download a file, over as many connections as it needs.

Before: `fetching.py` says what and where. After: a complete file whose hash is compared. What
was downloaded so far is in NAME.part, with what the server said of the file beside it: with that
the next try, or the next command, asks only for the rest.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from utils.data.fetch.connection import PARTIAL, CutError, ask, in_words
from utils.data.fetch.lists import PART, Item
from utils.errors import UserError
from utils.files.atomic import atomic_text_file
from utils.files.json import complete, read_json
from utils.files.regular import open_regular
from utils.screen.progress import Progress

WAITS_S = (1, 4, 15)  # before the next try; a part that came makes them begin again
SPARE_BYTES = 1 << 26  # of the disk, left free
_SAID = ".said"  # behind PART: what the server said of the file
_SAID_KINDS = {"url": str, "validator": str}
_MOST_SAID_BYTES = 1 << 16
_READ_BYTES = 1 << 18
_MIB = 1 << 20

log = logging.getLogger("fetch")


def download(item: Item, target: Path) -> str:
    """Fetch a file to `target`, which must not be there; return its SHA-256.

    Raises:
        UserError: the server does not have it, or other bytes than the list says; no connection
            after several tries; no space. What came stays, unless it is wrong.
    """
    part = target.with_name(target.name + PART)
    had_come = size_of(part)
    _complete(item, part)
    digest = hash_of(part)
    if item.sha256 in (None, digest):
        os.replace(part, target)
        _said_path(part).unlink(missing_ok=True)
        return digest
    part.unlink()
    _said_path(part).unlink(missing_ok=True)
    if had_come:
        log.warning("%s: the earlier download is of another file; starting again", item.name)
        return download(item, target)
    raise UserError(
        f"{item.url}: its SHA-256 is {digest}, and the list says {item.sha256}; it is not used: "
        "the file on the server was replaced or damaged, or the list is wrong"
    )


def _complete(item: Item, part: Path) -> None:
    """Fetch the rest of a part; give up only after a few tries in a row that bring nothing."""
    failures, reached = 0, size_of(part)
    while True:
        try:
            with _opened(part) as file:
                _continue(item, part, file)
            return
        except CutError as error:
            failures = 0 if size_of(part) > reached else failures + 1
            reached = max(reached, size_of(part))
            if failures > len(WAITS_S):
                raise UserError(
                    f"{item.url}: {error}; the downloaded part is kept, start again to continue"
                ) from error
            wait = WAITS_S[max(0, failures - 1)]
            log.warning("%s: %s; trying again in %d s", item.name, error, wait)
            time.sleep(wait)


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(_MIB):
            digest.update(block)
    return digest.hexdigest()


def require_space(folder: Path, num_bytes: int, what: str) -> None:
    """Raise UserError unless the disk of a folder has room for this many bytes."""
    free = shutil.disk_usage(folder).free
    if num_bytes + SPARE_BYTES > free:
        raise UserError(
            f"{what}: {num_bytes:,} bytes are needed in {folder}, and {free:,} are free; make room "
            "there, or name another folder: --out"
        )


def _opened(part: Path) -> BinaryIO:
    """Open the part for appending; make it if it is not there."""
    with suppress(FileNotFoundError):
        open_regular(part).close()  # an error for what is no file
    return open(part, "ab")


def size_of(part: Path) -> int:
    """Return the bytes of a file; 0 if it is not there."""
    return part.stat().st_size if part.exists() else 0


def _continue(item: Item, part: Path, file: BinaryIO) -> None:
    """Fetch the rest of a part; CutError if the connection ends too early."""
    start, validator = file.tell(), _validator_of(item, part)
    if not validator and item.sha256 is None:
        start = 0  # nothing would tell whether the rest is of the same file
    if item.size is not None and start > item.size:
        start = 0
    if start != item.size:
        with ask(item.url, start, validator) as answer:
            _receive(item, part, file, answer, start)
    file.flush()
    os.fsync(file.fileno())


def _receive(
    item: Item, part: Path, file: BinaryIO, answer: http.client.HTTPResponse, start: int
) -> None:
    if answer.status != PARTIAL:
        start = 0
    elif _start_of(answer) != start:
        file.truncate(0)
        raise CutError("the server sends another range than it was asked for")
    file.truncate(start)
    file.seek(start)
    total = None if answer.length is None else start + answer.length
    if None not in (item.size, total) and item.size != total:
        file.truncate(0)
        raise UserError(
            f"{item.url}: has {total:,} bytes on the server, and the list says {item.size:,}; it "
            "was replaced, or the list is wrong"
        )
    size = item.size or total
    if size is None and item.sha256 is None:
        raise UserError(
            f"{item.url}: neither the list nor the server gives its size; write it into the list"
        )
    require_space(part.parent, (size or 0) - start, item.name)
    _save_validator(item, part, answer)
    _copy(item, file, answer, start, size)


def _copy(
    item: Item, file: BinaryIO, answer: http.client.HTTPResponse, start: int, size: int | None
) -> None:
    """Append an answer to a file; CutError if it ends before its size."""
    done = start
    total = None if size is None else -(-size // _MIB)
    with Progress(total, f"fetching {item.name}", "MiB", start // _MIB) as shown:
        while block := _read(answer):
            file.write(block)
            for _ in range((done + len(block)) // _MIB - done // _MIB):
                shown.update()
            done += len(block)
            if size is not None and done > size:
                file.truncate(0)
                raise UserError(f"{item.url}: the server sends more than {size:,} bytes, its size")
    if size is not None and done < size:
        raise CutError(f"the connection ended after {done:,} of {size:,} bytes")


def _read(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read1(_READ_BYTES)
    except (http.client.HTTPException, OSError, ValueError, OverflowError) as error:
        # The last two are what http.client makes of lengths that are none.
        raise CutError(in_words(error)) from error


def _start_of(answer: http.client.HTTPResponse) -> int | None:
    """Return the first byte that an answer of a part has."""
    found = re.match(r"bytes (\d{1,18})-", answer.headers.get("Content-Range", ""))
    return int(found[1]) if found else None


def _said_path(part: Path) -> Path:
    return part.with_name(part.name + _SAID)


def _validator_of(item: Item, part: Path) -> str:
    """Return the ETag or time that the server gave with the part, or ""."""
    try:
        said = complete(read_json(_said_path(part), _MOST_SAID_BYTES), _SAID_KINDS)
    except (OSError, ValueError):
        return ""
    validator: str = said["validator"]
    is_of_this = said["url"] == item.url and validator.isascii() and validator.isprintable()
    return validator if is_of_this else ""


def _save_validator(item: Item, part: Path, answer: http.client.HTTPResponse) -> None:
    tag = answer.headers.get("ETag", "")
    if tag.startswith("W/"):  # it promises the same meaning, not the same bytes
        tag = ""
    validator = tag or answer.headers.get("Last-Modified", "")
    with atomic_text_file(_said_path(part)) as file:
        json.dump({"url": item.url, "validator": validator}, file)
