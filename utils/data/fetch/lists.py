"""A list of files to fetch: a YAML with the address, size, hash and place of each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from utils.data.fetch.unpacking import SUFFIXES
from utils.errors import UserError, brief
from utils.files.project import PROJECT
from utils.files.yaml import read_yaml

FOLDER = PROJECT / "data" / "fetch"
MAX_BYTES = 1 << 40  # of one file
_PART = r"[^\\/.\x00-\x1f\x7f][^\\/\x00-\x1f\x7f]{0,199}"  # of a path
_PLACE = rf"{_PART}(/{_PART}){{0,9}}", "a path below --out, without '..' or hidden folders,"
_TEXTS = {  # what a value matches as a whole, and in words
    "url": (r"https?://[\w.-]+(:\d+)?/[!-~]{0,2000}", "https://SERVER/FILE, or http with a hash,"),
    "sha256": (r"[0-9a-fA-F]{64}", "null, or 64 hexadecimal digits in quotes,"),
    "path": _PLACE,
    "unpack": _PLACE,
}


class Item(NamedTuple):
    """A file of a list."""

    url: str  # https, or http where there is a hash
    sha256: str | None  # None: not known yet
    size: int | None  # bytes; None: as the server says
    path: str  # below --out
    unpack: str | None = None  # folder below --out for its content; None: it stays as it is

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class FetchList(NamedTuple):
    """A list of files."""

    about: str  # what it is, and the licence
    then: str  # the next step; may be empty
    items: tuple[Item, ...]


def find_list(argument: str) -> FetchList:
    """Read a list by its path, or by its name in data/fetch.

    Raises:
        UserError: there is none, or it has a wrong value; the text says which.
    """
    names = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    path = Path(argument)
    if not path.exists() and not path.suffix:
        path = FOLDER / f"{path.name}.yaml"
    document = read_yaml("LIST", path, f"a list is a YAML file, or one of: {', '.join(names)}")
    about, then, files = (document.get(key, "") for key in ("about", "then", "files"))
    if not (isinstance(about, str) and isinstance(then, str) and isinstance(files, list) and files):
        raise UserError(f"{path}: 'about' and 'then' are texts, and 'files' a list of files")
    try:
        return FetchList(about, then, tuple(map(_read_item, files)))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _read_item(file: Any) -> Item:
    if not isinstance(file, dict) or {*file, "unpack"} != set(Item._fields):
        raise UserError(f"a file is {brief(file)}; {', '.join(Item._fields)} are needed")
    for key, (pattern, needed) in _TEXTS.items():
        value = file.get(key)
        may_be_null = value is None and key in ("sha256", "unpack")
        if not may_be_null and not (isinstance(value, str) and re.fullmatch(pattern, value, re.A)):
            raise UserError(f"'{key}' is {brief(value)}; {needed} is needed")
    item = Item(**file)
    if item.size is not None and (type(item.size) is not int or not 0 < item.size <= MAX_BYTES):
        raise UserError(f"'size' is {brief(item.size)}; null, or 1 to {MAX_BYTES:,}, is needed")
    if item.sha256 is None and not item.url.startswith("https:"):
        raise UserError(f"{item.url} has no 'sha256'; it is needed for an address without https")
    if item.unpack is not None and not item.path.endswith(SUFFIXES):
        raise UserError(f"'path' is {item.path}; to unpack it, {', '.join(SUFFIXES)} is needed")
    return item._replace(sha256=item.sha256 and item.sha256.lower())
