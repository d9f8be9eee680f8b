"""A reader of files from outside, valid files to start from, and how these are damaged."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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


MAX_BYTES = 2**18
MANY_CHANGES = 0.4  # the chance of one more change
NUMBERS = (
    0, 1, 2, 3, 7, 8, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40,
    2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
TEXT_VALUES = (
    b"0", b"-1", b"1e999", b"nan", b"-inf", b"0.5", b"2147483648", b"1000000000000", b"9" * 400,
    b"9" * 5000, b"0x10", b"1_0", b"true", b"null", b"''", b"[]", b"{}", b'"x"', b"[1, 2]",
    b'{"a": 1}', b"1" * 17, b"-9223372036854775809", b"1e-320",
)  # fmt: skip
# What reads as one value in JSON, YAML, CSV or a list of numbers.
VALUE_IN_TEXT = re.compile(rb"""-?[\d.]+(e[-+]?\d+)?|"[^"]{0,40}"|true|false|null|NaN""")
COMMON_TOKENS = (
    b"\x00", b"\xff", b"\xff" * 8, b"\n", b"\r\n", b"\x1b[2J", b"\xc3\x28", b"\xed\xa0\x80",
    b" " * 100, b"A" * 5000,
)  # fmt: skip


def mutate(
    seeds: Sequence[bytes], tokens: Sequence[bytes], generator: np.random.Generator
) -> bytes:
    """Return one of the seeds with one change or a few, at most 256 KiB."""
    content = seeds[generator.integers(len(seeds))]
    words = (*tokens, *COMMON_TOKENS)
    for _ in range(generator.geometric(1 - MANY_CHANGES)):
        change = CHANGES[generator.integers(len(CHANGES))]
        content = change(content or b"\x00", words, seeds, generator)[:MAX_BYTES]
    return content


def _flip_bits(content, words, seeds, generator):
    changed = bytearray(content)
    for position in generator.integers(8 * len(content), size=int(generator.integers(1, 9))):
        changed[position // 8] ^= 1 << position % 8
    return bytes(changed)


def _set_byte(content, words, seeds, generator):
    changed = bytearray(content)
    changed[generator.integers(len(content))] = generator.integers(256)
    return bytes(changed)


def _cut(content, words, seeds, generator):
    return content[: generator.integers(len(content))]


def _remove(content, words, seeds, generator):
    start, end = _span(content, generator)
    return content[:start] + content[end:]


def _repeat(content, words, seeds, generator):
    start, end = _span(content, generator)
    times = int(2 ** generator.uniform(0, 12))
    return content[:start] + content[start:end] * times + content[end:]


def _insert_word(content, words, seeds, generator):
    start = generator.integers(len(content) + 1)
    return content[:start] + _word(words, generator) + content[start:]


def _overwrite_with_word(content, words, seeds, generator):
    word = _word(words, generator)
    start = generator.integers(len(content))
    return content[:start] + word + content[start + len(word) :]


def _set_number(content, words, seeds, generator):
    width = int(generator.choice((1, 2, 4, 8)))
    value = NUMBERS[generator.integers(len(NUMBERS))] % 2 ** (8 * width)
    start = generator.integers(len(content))
    order = "little" if generator.integers(2) else "big"
    return content[:start] + value.to_bytes(width, order) + content[start + width :]


def _set_value(content, words, seeds, generator):
    found = list(VALUE_IN_TEXT.finditer(content))
    if not found:
        return _set_number(content, words, seeds, generator)
    place = found[generator.integers(len(found))]
    value = TEXT_VALUES[generator.integers(len(TEXT_VALUES))]
    return content[: place.start()] + value + content[place.end() :]


def _splice(content, words, seeds, generator):
    other = seeds[generator.integers(len(seeds))]
    start, end = _span(other, generator) if other else (0, 0)
    at = generator.integers(len(content) + 1)
    return content[:at] + other[start:end] + content[at:]


def _swap(content, words, seeds, generator):
    a, b, c, d = sorted(generator.integers(len(content) + 1, size=4).tolist())
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def _span(content: bytes, generator: np.random.Generator) -> tuple[int, int]:
    """Return the bounds of a part, short ones more often than long ones."""
    start = int(generator.integers(len(content)))
    length = int(2 ** generator.uniform(0, np.log2(len(content) + 1)))
    return start, start + length


def _word(words: Sequence[bytes], generator: np.random.Generator) -> bytes:
    """Return a word, now and then many times: nesting, long names, many entries."""
    times = int(2 ** generator.uniform(1, 13)) if generator.integers(8) == 0 else 1
    return words[generator.integers(len(words))] * times


CHANGES = (
    _flip_bits, _set_byte, _cut, _remove, _repeat, _insert_word, _overwrite_with_word, _set_number,
    _set_value, _set_value, _splice, _swap,
)  # fmt: skip
