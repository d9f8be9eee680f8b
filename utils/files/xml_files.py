"""Read XML within limits: plain elements, no DTD and so no custom entities.

Returns standard library elements, with `find`, `findtext`, `iter` and `attrib`. Names keep their
prefix: "a:b". Character references and the five predefined entities are resolved.
"""

from collections.abc import Container, Iterator
from pathlib import Path
from typing import BinaryIO
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from duet.utils.files.regular import read_bytes

MAX_DEPTH = 64
MAX_BYTES = 1 << 24  # for files read whole; up to 100 times as much in memory
_BLOCK_BYTES = 1 << 20

__all__ = ["Element", "read_xml", "stream_xml"]


def read_xml(path: Path, max_bytes: int = MAX_BYTES) -> Element:
    """Return the root of an XML file, in UTF-8 or its declared encoding.

    OSError: as `read_bytes`. ValueError: "line 3: ..."; no XML, a DTD, an unknown encoding, or
    nested deeper than `MAX_DEPTH`.
    """
    reader = _Reader(None)
    reader.feed(read_bytes(path, max_bytes), is_last=True)
    (root,) = reader.done
    return root


def stream_xml(file: BinaryIO, names: Container[str]) -> Iterator[Element]:
    """Yield complete elements with these names, of nested ones the outer; forget everything else.

    ValueError: as `read_xml`, after the elements before that line.
    """
    reader, block = _Reader(names), b"-"
    while block:
        block = file.read(_BLOCK_BYTES)
        reader.feed(block, is_last=not block)
        yield from reader.done
        reader.done.clear()


class _Reader:
    """Builds elements from expat events; `done` has the complete ones."""

    def __init__(self, names: Container[str] | None) -> None:
        self.done: list[Element] = []
        self._names = names
        self._depth = 0
        self._base = 0  # depth of the element being built
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
            raise ValueError(f"line {error.lineno}: invalid XML: {reason}") from error
        except (LookupError, UnicodeError) as error:
            text = f"line 1: unsupported encoding ({error!s:.100}); save the file as UTF-8"
            raise ValueError(text) from error
        finally:
            if is_last:  # else the two hold each other, and all elements, until the collector runs
                del self._parser

    def _error(self, text: str) -> ValueError:
        return ValueError(f"line {self._parser.CurrentLineNumber}: {text}")

    def _doctype(self, *declared: object) -> None:
        raise self._error("<!DOCTYPE is not supported; remove it")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH}")
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
