"""Read plain YAML within limits, and write YAML atomically.

Files are untrusted: anything but JSON values, with 64-bit integers, finite floats, and texts or
integers as keys, is refused before it is built.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from duet.utils.errors import UserError, brief
from duet.utils.files.atomic import atomic_text_file
from duet.utils.files.json_files import Document
from duet.utils.files.regular import as_utf8, encoding_fault, read_bytes
from duet.utils.project import PROJECT

MAX_BYTES = 1 << 22
MAX_DEPTH = 32
MAX_NODES = 300_000  # values and keys; an alias counts as its whole content
MAX_NUMBER_LENGTH = 64  # characters
LARGEST_INTEGER = 2**63 - 1
ADVICE = {
    "escape character": "; write / for \\, or use single quotes",
    "cannot start any token": "; indent with spaces, not tabs, and quote a text that starts with "
    "@, ` or %",
}

Place = tuple[str | int, ...]  # keys and positions, from the outside

_AS_WRITTEN = ("int", "float", "timestamp")
_RESOLVER = yaml.resolver.Resolver()
_SCALARS = yaml.constructor.SafeConstructor()
# libyaml's handling of directives is quadratic, and plain files need none but the version.
_DIRECTIVE = re.compile(r"^%(?!YAML )", re.MULTILINE)
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def read_yaml(flag: str, path: str | Path, known: str, texts_in: Place | None = None) -> Document:
    """Read a YAML file whose top level is a mapping; UserError with line and key otherwise.

    Args:
        flag: the flag that named the file, for messages.
        known: alternatives, for the message about a missing file.
        texts_in: as for `parse_yaml`.
    """
    try:
        document = parse_yaml(read_bytes(path, MAX_BYTES), texts_in)
    except OSError as error:
        raise UserError(f"{flag} {path}: {error.strerror}; {known}") from error
    except ValueError as error:
        raise UserError(f"{flag} {path}: {error}") from error
    if not isinstance(document, dict):
        raise UserError(f"{flag} {path}: not a mapping of names to values; {known}")
    return document


def find_yaml(argument: str, *folders: str, prefix: str = "") -> Path:
    """Return the file as given, else one of its name, .yaml or prefix added, in the folders."""
    given, name = Path(argument), Path(argument).name
    if not name or (given.exists() and not given.is_dir()):
        return given
    names = [f"{start}{name}{end}" for start in ("", prefix) for end in ("", ".yaml")]
    shipped = (PROJECT / folder / name for folder in folders for name in names)
    return next((path for path in shipped if path.is_file()), given)


def yaml_text(document: Document) -> str:
    """Return plain values as readable YAML, in the given order."""
    text = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)
    # PyYAML 6.0.3 does not round-trip this line end.
    return yaml.safe_dump(dict(document), sort_keys=False) if "\x85" in text else text


def write_yaml(path: Path, document: Document) -> None:
    with atomic_text_file(path) as file:
        file.write(yaml_text(document))


def parse_yaml(content: bytes, texts_in: Place | None = None) -> object:
    """Parse a plain YAML document in UTF-8; None if empty; ValueError "line 3, names.5: ...".

    texts_in: place of a list or mapping whose numbers and dates stay texts, as ("names",) for
        `names: [2_1, 010]`, which YAML reads as 21 and 8.
    """
    try:
        text = as_utf8(content).decode()
    except UnicodeDecodeError as error:
        raise ValueError(encoding_fault(error)) from error
    if found := _DIRECTIVE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(f"line {line}: directives (%) are not supported; remove it")
    try:
        return _Reader(text, texts_in).document()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        context = f"{error.context}, " if error.context else ""
        advice = "".join(text for part, text in ADVICE.items() if part in str(error.problem))
        text = f"line {line}: invalid YAML: {context}{error.problem}{advice}"
        raise ValueError(text) from error
    except yaml.reader.ReaderError as error:
        line = content.count(b"\n", 0, error.position) + 1
        raise ValueError(f"line {line}: invalid YAML: {error.reason}") from error


class _Reader:
    """Builds values from the parser's events, checking before building."""

    def __init__(self, text: str, texts_in: Place | None) -> None:
        self._events: Iterator[object] = yaml.parse(text, yaml.CSafeLoader)
        self._anchors: dict[str | None, tuple[object, int]] = {}  # a value and its number of nodes
        self._nodes = 0
        self._texts_in = texts_in
        self._place: list[str | int] = []  # keys and positions, from the outside

    def document(self) -> Any:
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._value(next(self._events))
        next(self._events)  # the end of the document
        event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            raise self._error(event, "a second document starts here; accepted: one document")
        return value

    def _error(self, event: Any, text: str) -> ValueError:
        names = [name if len(name) <= 40 else name[:37] + "..." for name in map(str, self._place)]
        place = ", ".join([f"line {event.start_mark.line + 1}", *filter(None, [".".join(names)])])
        return ValueError(f"{place}: {text}")

    def _value(self, event: Any) -> object:
        before = self._nodes
        self._nodes += 1
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                name = brief(event.anchor)
                raise self._error(event, f"the alias {name} has no anchor before it")
            value, nodes = self._anchors[event.anchor]
            self._nodes += nodes
        elif isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        else:
            value = self._collection(event)
        if self._nodes > MAX_NODES:
            raise self._error(event, f"more than {MAX_NODES:,} values, with aliases expanded")
        self._anchors[event.anchor] = value, self._nodes - before
        return value

    def _collection(self, event: Any) -> object:
        is_list = isinstance(event, yaml.SequenceStartEvent)
        own = "seq" if is_list else "map"
        if event.tag not in (None, "!", f"tag:yaml.org,2002:{own}"):
            raise self._error(event, f"the tag {brief(event.tag)} is not supported; remove it")
        if len(self._place) >= MAX_DEPTH:
            raise self._error(event, f"nested deeper than {MAX_DEPTH}")
        return self._list() if is_list else self._mapping()

    def _list(self) -> list[object]:
        values: list[object] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            self._place.append(len(values))
            values.append(self._value(event))
            self._place.pop()
        return values

    def _mapping(self) -> dict[str | int, object]:
        values: dict[str | int, object] = {}
        texts: set[str] = set()  # 1 and "1" are the same key in JSON
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event)
            if str(key) in texts:
                raise self._error(event, f"the key {brief(key)} appears twice")
            texts.add(str(key))
            self._place.append(key)
            values[key] = self._value(next(self._events))
            self._place.pop()
        return values

    def _key(self, event: object) -> str | int:
        is_simple = isinstance(event, yaml.ScalarEvent | yaml.AliasEvent)
        key: Any = self._value(event) if is_simple else []
        if not isinstance(key, (str, int)) or isinstance(key, bool):
            raise self._error(
                event, f"the key {brief(key)} is not text or a whole number; put it in quotes"
            )
        return key

    def _scalar(self, event: Any) -> object:
        tag, text = _tag_of(event).removeprefix("tag:yaml.org,2002:"), event.value
        outer = self._texts_in
        depth = len(outer or ())
        as_text = len(self._place) > depth and tuple(self._place[:depth]) == outer
        if tag == "str" or (as_text and tag in _AS_WRITTEN):
            if _SURROGATE.search(text):
                raise self._error(event, f"{brief(text)} contains a lone surrogate")
            return text
        if tag == "null":
            return None
        if tag == "merge":
            advice = "write out the entries, or quote << if it is text"
            raise self._error(event, f"merge keys (<<) are not supported; {advice}")
        try:
            return _plain(tag, text)
        except (ValueError, LookupError) as error:
            what = "accepted: a boolean, 64-bit whole number or finite number; quote it if text"
            raise self._error(event, f"{brief(text)}, read as {brief(tag)}; {what}") from error


def _plain(tag: str, text: str) -> bool | int | float:
    """Convert to a boolean, a whole number of 64 bits or a finite float; or ValueError."""
    if tag not in ("bool", "int", "float") or len(text) > MAX_NUMBER_LENGTH:
        raise ValueError(tag)
    construct = getattr(_SCALARS, f"construct_yaml_{tag}")
    value: bool | int | float = construct(yaml.ScalarNode(tag, text))
    if not (math.isfinite(value) if tag == "float" else abs(value) <= LARGEST_INTEGER):
        raise ValueError(text)
    return value


def _tag_of(event: Any) -> str:
    if event.tag not in (None, "!"):
        return str(event.tag)
    return str(_RESOLVER.resolve(yaml.ScalarNode, event.value, event.implicit))
