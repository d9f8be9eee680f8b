"""XML read within bounds: plain elements, without a DTD and so without entities of its own.

Elements are those of the standard library: `find`, `findtext`, `iter` and `attrib`. Names keep
their prefix: "a:b". The reference of a character and the five entities of XML are resolved.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import BinaryIO
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from duet.utils.regular_files import read_bytes

MAX_DEPTH = 64
MAX_BYTES = 1 << 24  # of a file that is read whole, 100 times its size in memory at worst
_BLOCK_BYTES = 1 << 20

__all__ = ["Element", "read_xml", "stream_xml"]


def read_xml(path: Path, max_bytes: int = MAX_BYTES) -> Element:
    """Return the root of an XML file, in UTF-8 or the encoding that it declares.

    Raises:
        OSError: as `read_bytes`.
        ValueError: "line 3: ..."; no XML, a DTD, an encoding that expat does not know, or nested
            deeper than `MAX_DEPTH`.
    """
    reader = _Reader(None)
    reader.feed(read_bytes(path, max_bytes), is_last=True)
    (root,) = reader.done
    return root


def stream_xml(file: BinaryIO, names: Container[str]) -> Iterator[Element]:
    """Yield the elements of these names, complete, as they end; of nested ones only the outer.

    What lies outside of them is not kept: memory holds those of one MiB of the file.

    Raises:
        ValueError: as `read_xml`; the elements before that place have been yielded.
    """
    reader, block = _Reader(names), b"-"
    while block:
        block = file.read(_BLOCK_BYTES)
        reader.feed(block, is_last=not block)
        yield from reader.done
        reader.done.clear()


class _Reader:
    """expat's events -> elements; what is not wanted is counted, not built.

    Attributes:
        done: the elements that are complete.
    """

    def __init__(self, names: Container[str] | None) -> None:
        self.done: list[Element] = []
        self._names = names
        self._depth = 0
        self._base = 0  # the depth of the element that is being built
        self._builder: TreeBuilder | None = None
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end

    def feed(self, block: bytes, is_last: bool) -> None:
        try:
            self._parser.Parse(block, is_last)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise ValueError(f"line {error.lineno}: no valid XML: {reason}") from error
        except (LookupError, UnicodeError) as error:
            text = f"line 1: an encoding that is not read ({error!s:.100}); save the file as UTF-8"
            raise ValueError(text) from error

    def _refused(self, text: str) -> ValueError:
        return ValueError(f"line {self._parser.CurrentLineNumber}: {text}")

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
                self.done.append(self._builder.close())
                self._builder = self._parser.CharacterDataHandler = None
        self._depth -= 1
