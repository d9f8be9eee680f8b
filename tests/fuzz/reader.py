"""What the fuzzer knows of one reader: valid files to start from, and a call that reads a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 2**20


def as_it_is(content: bytes) -> bytes:
    return content


def as_text(content: bytes) -> bytes:
    """Return UTF-8, but for one content in eight: most damage would be found by decoding it."""
    if len(content) % 8 == 0:
        return content
    return content.decode("utf-8", errors="replace").encode()


@dataclass(frozen=True)
class Reader:
    """A way by which bytes from outside come in.

    Attributes:
        read: reads the file as the product does, and uses what it gets as far as that is cheap.
            It returns, or raises one of `child.py::REFUSALS`; anything else is a fault.
        seeds: contents of valid files.
        file_name: of the mutants; some readers go by it.
        tokens: byte strings that mean something in this format, hostile ones among them.
        seal: puts checksums and lengths right again, so that mutants come past their check.
        memory_bytes: that a small file may cost.
        seconds: likewise, of processor time.
    """

    read: Callable[[Path], object]
    seeds: Callable[[], Sequence[bytes]]
    file_name: str
    tokens: tuple[bytes, ...] = ()
    seal: Callable[[bytes], bytes] = as_it_is
    memory_bytes: int = 64 * MIB
    seconds: float = 1.0
