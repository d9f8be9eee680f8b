"""XML read within bounds: plain elements, without a DTD and so without entities of its own.

Elements are those of the standard library: `find`, `findtext`, `iter` and `attrib`. Names keep
their prefix: "a:b". The reference of a character and the five entities of XML are resolved.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from utils.errors import brief
from utils.regular_files import read_bytes

MAX_DEPTH = 64
MAX_BYTES = 1 << 24  # of a file that is read whole, 100 times its size in memory at worst
# Of a tag with its attributes, or a comment: expat 2.5 reads it from its start with each block.
MAX_TOKEN_BYTES = 1 << 22
_BLOCK_BYTES = 1 << 16
# Those that expat knows, and tables of 256 characters.
_ENCODING = re.compile(r"utf-?8|utf-?16(le|be)?|us-ascii|iso-8859-\d{1,2}|windows-125\d", re.I)

__all__ = ["Element", "read_xml", "stream_xml"]


def read_xml(path: Path, max_bytes: int = MAX_BYTES) -> Element:
    """Return the root of an XML file, in UTF-8 or the encoding that it declares.

    Raises:
        OSError: as `read_bytes`.
        ValueError: "line 3: ..."; no XML, a DTD, an encoding other than UTF-8, UTF-16, ISO 8859
            and Windows's of one byte, a tag beyond 4 MiB, or nested deeper than `MAX_DEPTH`.
    """
    (root,) = stream_xml(BytesIO(read_bytes(path, max_bytes)))
    return root


def stream_xml(file: BinaryIO, names: Container[str] | None = None) -> Iterator[Element]:
    """Yield the elements of these names, complete, as they end; of nested ones only the outer.

    What lies outside of them is not kept: memory holds one of them at a time, and a few MiB.
    Without names the root is yielded.

    Raises:
        ValueError: as `read_xml`; the elements before that place have been yielded.
    """
    reader, fed = _Reader(names), 0
    while block := file.read(_BLOCK_BYTES):
        fed += len(block)
        reader.feed(block, fed)
        yield from reader.taken()
    reader.feed(b"", fed)
    yield from reader.taken()


class _Reader:
    """expat's events -> elements; what is not wanted is counted, not built."""

    def __init__(self, names: Container[str] | None) -> None:
        self._names = names
        self._depth = 0
        self._base = 0  # the depth of the element that is being built
        self._builder: TreeBuilder | None = None
        self._done: list[Element] = []
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.XmlDeclHandler = self._declaration
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end

    def feed(self, block: bytes, fed: int) -> None:
        """Read on, or end with an empty block; `fed` bytes are known with this one."""
        try:
            self._parser.Parse(block, not block)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise ValueError(f"line {error.lineno}: no valid XML: {reason}") from error
        if fed - self._parser.CurrentByteIndex > MAX_TOKEN_BYTES:
            raise self._refused(f"a tag or comment of more than {MAX_TOKEN_BYTES:,} bytes")

    def taken(self) -> list[Element]:
        """Return the elements that are complete and have not been returned."""
        done, self._done = self._done, []
        return done

    def _refused(self, text: str) -> ValueError:
        return ValueError(f"line {self._parser.CurrentLineNumber}: {text}")

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding and not _ENCODING.fullmatch(encoding):
            raise self._refused(f"the encoding {brief(encoding)} is not read; save it as UTF-8")

    def _doctype(self, *declared: object) -> None:
        raise self._refused("a document type (<!DOCTYPE) is not accepted; remove it")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._refused(f"nested deeper than {MAX_DEPTH}")
        if self._builder is None and (self._names is None or name in self._names):
            self._builder, self._base = TreeBuilder(), self._depth
            self._parser.CharacterDataHandler = self._builder.data
        if self._builder is not None:
            self._builder.start(name, attributes)

    def _end(self, name: str) -> None:
        if self._builder is not None:
            self._builder.end(name)
            if self._depth == self._base:
                self._done.append(self._builder.close())
                self._builder = self._parser.CharacterDataHandler = None
        self._depth -= 1
