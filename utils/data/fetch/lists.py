"""A list of files to fetch: a YAML with address, size, hash and place of each.

Before: the command line. After: `fetching.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from utils.data.fetch.address import is_plain_url
from utils.data.fetch.unpacking import SUFFIXES
from utils.errors import UserError, brief
from utils.files.project import PROJECT
from utils.files.yaml import read_yaml

FOLDER = PROJECT / "data" / "fetch"
PART = ".part"  # of a file that has not come to its end
UNPACKED = ".unpacked"  # in the place of an archive: what was in it lies there
_KEYS = ("url", "sha256", "size", "path")
_MAX_BYTES = 1 << 40
_MAX_LENGTH = 1000  # of a path


class Item(NamedTuple):
    """A file of a list."""

    url: str  # https, or http where there is a hash
    sha256: str | None  # None: nobody knows it yet
    size: int | None  # bytes; None: the server says
    path: str  # below the folder of --out
    unpack: str | None  # the folder for what is in it, below that of --out; None: it stays whole

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class FetchList(NamedTuple):
    """What a list names."""

    about: str  # what it is, and the licence
    then: str  # what to do with it; may be empty
    items: tuple[Item, ...]


def find_list(argument: str) -> FetchList:
    """Read a list, or that of a name in data/fetch.

    Raises:
        UserError: there is none, or something in it is not as it must be; the text says what.
    """
    known = "a list is a YAML file, or one of: " + ", ".join(
        sorted(path.stem for path in FOLDER.glob("*.yaml"))
    )
    path = Path(argument)
    if not path.exists() and not path.suffix:
        path = FOLDER / f"{path.name}.yaml"
    return _Reader(path).read(read_yaml("LIST", path, known))


def choose(found: FetchList, names: Sequence[str]) -> list[Item]:
    """Return the files of some names, in the order of the list; all of them without names.

    Raises:
        UserError: a name that is not in the list.
    """
    known = {item.name for item in found.items}
    if wrong := [name for name in names if name not in known]:
        raise UserError(f"{wrong[0]}: not in the list; it has {', '.join(sorted(known))}")
    return [item for item in found.items if not names or item.name in names]


class _Reader:
    def __init__(self, path: Path):
        self.path = path

    def read(self, document: Mapping[Any, Any]) -> FetchList:
        self._require_keys("the list", document, ("about", "files"), ("then",))
        files = document["files"]
        if not isinstance(files, list) or not files:
            raise self._error("files", files, "a list of files")
        items = tuple(self._item(number, file) for number, file in enumerate(files, start=1))
        names = [item.name for item in items]
        if len(set(names)) < len(names):
            raise self._error("path", names, "another file name for each")
        self._require_folders(items)
        about, then = document["about"], document.get("then") or ""
        if not (isinstance(about, str) and isinstance(then, str)):
            raise self._error("about", about, "a text; so is 'then'")
        return FetchList(about, then, items)

    def _item(self, number: int, file: Any) -> Item:
        self._require_keys(f"file {number}", file, _KEYS, ("unpack",))
        unpack = file.get("unpack")
        item = Item(
            self._url(file["url"]), self._hash(file["sha256"]), self._size(file["size"]),
            self._place("path", file["path"]),
            None if unpack is None else self._place("unpack", unpack),
        )  # fmt: skip
        if item.sha256 is None and not item.url.startswith("https:"):
            raise self._error("sha256", None, "the hash of a file whose url is not https")
        if item.unpack is not None and not item.path.endswith(SUFFIXES):
            raise self._error("path", item.path, f"an archive to unpack: {', '.join(SUFFIXES)}")
        return item

    def _require_folders(self, items: Sequence[Item]) -> None:
        """Raise UserError where a folder would be in the place of a file."""
        files = {item.path for item in items}
        for item in items:
            outer, unpack = PurePosixPath(item.path).parent, PurePosixPath(item.unpack or "")
            for key, folder in (("path", outer), ("unpack", unpack)):
                if found := [x for x in (folder, *folder.parents) if str(x) in files]:
                    needed = f"another place than that of the file {found[0]}"
                    raise self._error(key, getattr(item, key), needed)

    def _error(self, key: str, value: Any, needed: str) -> UserError:
        return UserError(f"{self.path}: '{key}' is {brief(value)}; {needed} is needed")

    def _require_keys(
        self, what: str, value: Any, needed: Sequence[str], optional: Sequence[str]
    ) -> None:
        if not isinstance(value, Mapping):
            raise self._error(what, value, f"a mapping with the keys {', '.join(needed)}")
        if not set(needed) <= set(value) <= {*needed, *optional}:
            raise UserError(
                f"{self.path}: {what} has the keys {brief(list(value))}; needed are "
                f"{', '.join(needed)}, and there may be {', '.join(optional)}"
            )

    def _url(self, value: Any) -> str:
        needed = "an address of a server, https://SERVER/FILE, or http:// with a hash,"
        if not isinstance(value, str) or not is_plain_url(value):
            raise self._error("url", value, needed)
        return value

    def _hash(self, value: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", value):
            raise self._error("sha256", value, "a SHA-256 of 64 hexadecimal digits, in quotes,")
        return value.lower()

    def _size(self, value: Any) -> int | None:
        if value is None:
            return None
        if type(value) is not int or not 0 < value <= _MAX_BYTES:
            raise self._error("size", value, f"a number of bytes up to {_MAX_BYTES:,}, or null,")
        return value

    def _place(self, key: str, value: Any) -> str:
        needed = f"a path of up to {_MAX_LENGTH} characters below --out, without '..',"
        if not isinstance(value, str) or len(value) > _MAX_LENGTH:
            raise self._error(key, value, needed)
        if not value.isprintable() or "\\" in value:
            raise self._error(key, value, needed)
        parts = value.split("/")
        if any(part in ("", ".", "..") or len(part.encode()) > 200 for part in parts):
            raise self._error(key, value, needed)
        if any(part.endswith((PART, UNPACKED)) or part.startswith(".") for part in parts):
            raise self._error(
                key, value, f"a name without {PART} or {UNPACKED} at its end, or '.',"
            )
        return value
