"""A reader of files from outside, valid files to start from, and how these are damaged."""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 2**20


@dataclass(frozen=True)
class Reader:
    """A way by which bytes from outside come in.

    Attributes:
        read: reads the file as the product does, and uses what it gets as far as that is cheap.
            It returns, or raises one of `campaign.py::REFUSALS`; anything else is a fault.
        seeds: contents of valid files.
        file_name: of the mutants; some readers go by it.
        words: byte strings that no seed has and that mean something here, hostile ones among them.
        seal: puts checksums and lengths right again, so that mutants come past their check.
        memory_bytes: that a small file may cost.
        seconds: likewise, of processor time.
    """

    read: Callable[[Path], object]
    seeds: Callable[[], Sequence[bytes]]
    file_name: str
    words: Sequence[bytes] = ()
    seal: Callable[[bytes], bytes] = bytes
    memory_bytes: int = 64 * MIB
    seconds: float = 1.0

    def mutant(self, name: str, seeds: Sequence[bytes], seed: int, index: int) -> bytes:
        """Return the content of mutant `index`: a function of (reader, seed, index)."""
        draw = random.Random(f"{name} {seed} {index}")
        return self.seal(mutate(seeds, (*self.words, *COMMON_WORDS), draw))


MAX_BYTES = 2**18
MANY_CHANGES = 0.4  # the chance of one more change
COMMON_WORDS = (
    b"\x00", b"\xff", b"\xff" * 8, b"\n", b"\r\n", b"\x1b[2J", b"\xc3\x28", b"\xed\xa0\x80",
    b" " * 100, b"A" * 5000,
)  # fmt: skip
NUMBERS = (
    0, 1, 2, 3, 7, 8, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40,
    2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
VALUES = (
    b"0", b"-1", b"1e999", b"nan", b"-inf", b"0.5", b"2147483648", b"1000000000000", b"9" * 400,
    b"9" * 5000, b"0x10", b"1_0", b"true", b"null", b"''", b"[]", b"{}", b'"x"', b"[1, 2]",
    b'{"a": 1}', b"1" * 17, b"-9223372036854775809", b"1e-320",
)  # fmt: skip
CHANGES = (
    "remove", "cut", "repeat", "flip", "insert", "overwrite", "number", "value", "value", "splice",
)  # fmt: skip
# What reads as one value in JSON, YAML, CSV or a list of numbers.
VALUE = re.compile(rb"""-?[\d.]+(e[-+]?\d+)?|"[^"]{0,40}"|true|false|null|NaN""")


def mutate(seeds: Sequence[bytes], words: Sequence[bytes], draw: random.Random) -> bytes:
    """Return one of the seeds with one change or a few, at most 256 KiB."""
    content, more = draw.choice(seeds), True
    while more:
        content = change(content, words, seeds, draw)[:MAX_BYTES]
        more = draw.random() < MANY_CHANGES
    return content


def change(
    content: bytes, words: Sequence[bytes], seeds: Sequence[bytes], draw: random.Random
) -> bytes:
    """Return the content with another part in place of one, which may be empty."""
    start, end = span(content, draw)
    old = content[start:end]
    match draw.choice(
        [
            "remove",
            "cut",
            "repeat",
            "flip",
            "insert",
            "overwrite",
            "number",
            "value",
            "value",
            "splice",
        ]
    ):
        case "remove":
            new = b""
        case "cut":
            new, end = b"", len(content)
        case "repeat":
            new = old * int(2 ** draw.uniform(0, 12))
        case "flip":
            end = min(end, start + 8)
            new = bytes(x ^ (1 << draw.randrange(16)) % 256 for x in content[start:end])
        case "insert":
            new = word(words, draw) + old
        case "overwrite":
            new = word(words, draw)
            end = start + len(new)
        case "number":
            width = draw.choice((1, 2, 4, 8))
            value = draw.choice(NUMBERS) % 256**width
            new, end = value.to_bytes(width, draw.choice(("big", "little"))), start + width
        case "value":
            found = [place.span() for place in VALUE.finditer(content)]
            start, end = draw.choice(found or [(start, end)])
            new = draw.choice(VALUES)
        case "splice":
            other = draw.choice((content, *seeds))
            new = other[slice(*span(other, draw))] + old * draw.getrandbits(1)
    return content[:start] + new + content[end:]


def span(content: bytes, draw: random.Random) -> tuple[int, int]:
    """Return the bounds of a part, short ones more often than long ones."""
    start = draw.randrange(len(content) + 1)
    return start, start + int((len(content) + 1) ** draw.random())


def word(words: Sequence[bytes], draw: random.Random) -> bytes:
    """Return a word, now and then many times: nesting, long names, many entries."""
    return draw.choice(words) * (int(2 ** draw.uniform(1, 13)) if draw.randrange(8) == 0 else 1)
