"""YAML files: plain data read within bounds, and written whole.

Anyone may have written such a file. So what is not plain is refused before it is built: the result
holds dicts (keys are texts or whole numbers), lists, texts, whole numbers of 64 bits, finite
floats, booleans and None, so that JSON can hold it too.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from duet.utils.atomic_files import atomic_text_file
from duet.utils.errors import UserError, brief
from duet.utils.project import PROJECT
from duet.utils.regular_files import read_bytes

MAX_BYTES = 1 << 22
MAX_DEPTH = 32
MAX_NODES = 300_000  # values and keys; an alias counts as all that it stands for
MAX_NUMBER_LENGTH = 64  # characters
LARGEST_INTEGER = 2**63 - 1

_RESOLVER = yaml.resolver.Resolver()
_SCALARS = yaml.constructor.SafeConstructor()
# libyaml compares each with all before it, and no plain file needs any but the version.
_DIRECTIVE = re.compile(r"^%(?!YAML )", re.MULTILINE)
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def read_yaml(flag: str, path: str | Path, known: str) -> Mapping[Any, Any]:
    """Read a YAML file whose top level is a mapping.

    Args:
        flag: the one that named the file, for messages.
        known: what could be given instead; ends the message for a file that is not there.

    Raises:
        UserError: the file cannot be read, is no YAML, has more than plain data, a key twice, or
            is beyond the limits above; the text has the line and the key. Or it is no mapping.
    """
    try:
        document = parse_yaml(read_bytes(path, MAX_BYTES))
    except OSError as error:
        raise UserError(f"{flag} {path}: {error.strerror}; {known}") from error
    except ValueError as error:
        raise UserError(f"{flag} {path}: {error}") from error
    if not isinstance(document, dict):
        raise UserError(f"{flag} {path}: a mapping of names to values is needed; {known}")
    return document


def find_yaml(argument: str, *folders: str, prefix: str = "") -> Path:
    """Return the file as given; if there is none, the one of its name in the project's folders.

    The name may lack its .yaml and the prefix, and a folder of that name is no such file.
    """
    given, name = Path(argument), Path(argument).name
    if not name or (given.exists() and not given.is_dir()):
        return given
    names = [f"{start}{name}{end}" for start in ("", prefix) for end in ("", ".yaml")]
    shipped = (PROJECT / folder / name for folder in folders for name in names)
    return next((path for path in shipped if path.is_file()), given)


def near_yamls(argument: str, *folders: str) -> str:
    """Return "did you mean a or b?; " of the names in the project's folders; "" if none is near."""
    names = [path.stem for folder in folders for path in (PROJECT / folder).glob("*.yaml")]
    near = difflib.get_close_matches(Path(argument).name.removesuffix(".yaml"), names, n=3)
    return f"did you mean {' or '.join(near)}?; " if near else ""


def yaml_text(document: Mapping[str, Any]) -> str:
    """Return plain values as YAML for people to read, in the order given."""
    text = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)
    if "\x85" in text:  # PyYAML 6.0.3 writes this line end so that it reads a blank again
        text = yaml.safe_dump(dict(document), sort_keys=False)
    return text


def write_yaml(path: Path, document: Mapping[str, Any]) -> None:
    """Write settings for people to read, in the order given."""
    with atomic_text_file(path) as file:
        file.write(yaml_text(document))


def parse_yaml(content: bytes) -> Any:
    """Return the plain data of a YAML document in UTF-8; None of an empty one.

    Raises:
        ValueError: as `read_yaml` says, "line 3, names.5: ...".
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"line {line}: the byte {content[error.start]:#x} is not UTF-8; save the file as UTF-8"
        ) from error
    if found := _DIRECTIVE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(f"line {line}: a directive (%) is not accepted; remove it")
    try:
        return _Reader(text).document()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        context = f"{error.context}, " if error.context else ""
        raise ValueError(f"line {line}: no valid YAML: {context}{error.problem}") from error
    except yaml.reader.ReaderError as error:
        line = content.count(b"\n", 0, error.position) + 1
        raise ValueError(f"line {line}: no valid YAML: {error.reason}") from error


class _Reader:
    """The parser's events -> values, checked before they are built."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = yaml.parse(text, yaml.CSafeLoader)
        self._anchors: dict[str | None, tuple[Any, int]] = {}  # a value and its number of nodes
        self._nodes = 0
        self._place: list[str | int] = []  # keys and positions, from the outside

    def document(self) -> Any:
        """Return the value of the only document."""
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._value(next(self._events))
        next(self._events)  # the end of the document
        event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            raise self._refused(event, "a second document starts here; one is needed")
        return value

    def _refused(self, event: Any, text: str) -> ValueError:
        names = [name if len(name) <= 40 else name[:37] + "..." for name in map(str, self._place)]
        place = ", ".join([f"line {event.start_mark.line + 1}", *filter(None, [".".join(names)])])
        return ValueError(f"{place}: {text}")

    def _value(self, event: Any) -> Any:
        before = self._nodes
        self._nodes += 1
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                name = brief(event.anchor)
                raise self._refused(event, f"the alias {name} has no anchor that ends before it")
            value, nodes = self._anchors[event.anchor]
            self._nodes += nodes
        elif isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        else:
            value = self._collection(event)
        if self._nodes > MAX_NODES:
            raise self._refused(
                event, f"more than {MAX_NODES:,} values; an alias counts as all it stands for"
            )
        self._anchors[event.anchor] = value, self._nodes - before
        return value

    def _collection(self, event: Any) -> Any:
        is_list = isinstance(event, yaml.SequenceStartEvent)
        own = "seq" if is_list else "map"
        if event.tag not in (None, "!", f"tag:yaml.org,2002:{own}"):
            raise self._refused(event, f"the tag {brief(event.tag)} is not accepted; remove it")
        if len(self._place) >= MAX_DEPTH:
            raise self._refused(event, f"nested deeper than {MAX_DEPTH}")
        return self._list() if is_list else self._mapping()

    def _list(self) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            self._place.append(len(values))
            values.append(self._value(event))
            self._place.pop()
        return values

    def _mapping(self) -> dict[str | int, Any]:
        values: dict[str | int, Any] = {}
        texts: set[str] = set()  # in JSON 1 and "1" are one key
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event)
            if str(key) in texts:
                raise self._refused(event, f"the key {brief(key)} appears twice")
            texts.add(str(key))
            self._place.append(key)
            values[key] = self._value(next(self._events))
            self._place.pop()
        return values

    def _key(self, event: Any) -> str | int:
        is_simple = isinstance(event, yaml.ScalarEvent | yaml.AliasEvent)
        key: Any = self._value(event) if is_simple else []
        if not isinstance(key, (str, int)) or isinstance(key, bool):
            raise self._refused(
                event, f"the key {brief(key)} is not text or a whole number; put it in quotes"
            )
        return key

    def _scalar(self, event: Any) -> Any:
        tag, text = _tag_of(event).removeprefix("tag:yaml.org,2002:"), event.value
        if tag == "str":
            if _SURROGATE.search(text):
                raise self._refused(event, f"{brief(text)} has half of a surrogate pair")
            return text
        if tag == "null":
            return None
        try:
            return _plain(tag, text)
        except (ValueError, LookupError) as error:
            what = "no boolean, whole number of 64 bits or finite number; put text in quotes"
            raise self._refused(event, f"{brief(text)}, read as {brief(tag)}, is {what}") from error


def _plain(tag: str, text: str) -> bool | int | float:
    """Return a boolean, a whole number of 64 bits or a finite float; ValueError for all else."""
    if tag not in ("bool", "int", "float") or len(text) > MAX_NUMBER_LENGTH:
        raise ValueError(tag)
    construct = getattr(_SCALARS, f"construct_yaml_{tag}")
    value: bool | int | float = construct(yaml.ScalarNode(tag, text))
    if not (math.isfinite(value) if tag == "float" else abs(value) <= LARGEST_INTEGER):
        raise ValueError(text)
    return value


def _tag_of(event: Any) -> str:
    """Return the tag of a scalar: its own, else that of what is written."""
    if event.tag not in (None, "!"):
        return str(event.tag)
    return str(_RESOLVER.resolve(yaml.ScalarNode, event.value, event.implicit))
