"""A pickle -> inert records: an interpreter of pickle opcodes that runs and imports nothing.

Why nothing can run: a global becomes a `Name`, its text; a call becomes a `Record` of the name
and the arguments; a state is stored beside them. No object of the pickle's choosing is called,
built, hashed or compared.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NoReturn

from utils.errors import UserError, brief
from utils.weights.accepted_names import REFUSED_MODELS

MAX_OPCODES = 2_000_000  # yolov5n has 34 thousand
MAX_NUMERIC_KEYS = 5_000  # unlike strings, numbers can be chosen to collide in a dict
MAX_INTEGER_BYTES = 16
MAX_NAME = 100  # characters of a module or an attribute; accepted ones have up to 40
LOWEST_PROTOCOL, HIGHEST_PROTOCOL = 2, 5

ORDERED_DICT = "collections.OrderedDict"
SETS = ("__builtin__.set", "builtins.set")
GETATTR = ("__builtin__.getattr", "builtins.getattr")
FUSED_METHODS = ("forward_fuse", "fuseforward")
DETECT = "models.yolo.Detect"  # whose forward a segmentation model keeps


@dataclass(frozen=True, slots=True)
class Name:
    """A global the pickle asked for, as text."""

    name: str  # module.attribute


@dataclass(eq=False, repr=False, slots=True)
class Record:
    """An object that the pickle asked for: its name, its arguments and its state.

    Compared by identity and without a repr, since records may contain themselves.
    """

    kind: str
    arguments: tuple[Any, ...]
    state: Any = None


PersistentLoad = Callable[[Any], Any]


def read_pickle(
    data: bytes | memoryview,
    accepted: Collection[str],
    persistent_load: PersistentLoad | None = None,
    start: int = 0,
) -> tuple[Any, int]:
    """Read the pickle that begins at `start`.

    Args:
        data: protocol 2 to 5.
        accepted: the only globals, "module.attribute", that may be asked for.
        persistent_load: gives the value of a persistent id; without it there may be none.

    Returns:
        The value and the position after it. Dicts, lists, tuples, strings, bytes and numbers are
        themselves, an OrderedDict is a dict, a set a list, all else is a `Name` or `Record`.

    Raises:
        UserError: damaged, over a bound, or asking for a global that is not accepted.
    """
    machine = _Machine(memoryview(data), accepted, persistent_load, start)
    try:
        return machine.run(), machine.position
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise UserError(f"damaged pickle at byte {machine.position}: {error}") from error


class _Machine:
    """The pickle stack machine; each method is one opcode, found through `_OPCODES`."""

    def __init__(
        self,
        data: memoryview,
        accepted: Collection[str],
        persistent_load: PersistentLoad | None,
        start: int,
    ) -> None:
        self.data = data
        self.accepted = accepted
        self.persistent_load = persistent_load
        self.position = start
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # stacks under the marks
        self.memo: dict[int, Any] = {}
        self.numeric_keys = 0

    def run(self) -> Any:
        for _ in range(MAX_OPCODES):
            code = self.take(1)[0]
            if code == _STOP:
                if len(self.stack) != 1 or self.below:
                    self.damaged("it does not end with one value")
                return self.stack[0]
            opcode = _OPCODES.get(code)
            if opcode is None:
                self.damaged(f"opcode {bytes([code])!r}, which no weights file needs")
            opcode(self)
        raise UserError(f"over {MAX_OPCODES:,} opcodes; no weights file needs as many")

    def damaged(self, reason: str) -> NoReturn:
        raise UserError(f"damaged pickle at byte {self.position}: {reason}")

    # What the opcodes share.

    def take(self, length: int) -> memoryview:
        end = self.position + length
        if end > len(self.data):
            self.damaged("it ends too early")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def take_number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def take_line(self) -> str:
        end = self.position + MAX_NAME + 1
        line, newline, _ = bytes(self.data[self.position : end]).partition(b"\n")
        if not newline:
            self.damaged(f"a name of over {MAX_NAME} characters, or without an end")
        self.position += len(line) + 1
        return line.decode("utf-8")

    def pop_to_mark(self) -> list[Any]:
        items = self.stack
        self.stack = self.below.pop()
        return items

    def pop_tuple(self) -> tuple[Any, ...]:
        value = self.stack.pop()
        if not isinstance(value, tuple):
            self.damaged("arguments that are no tuple")
        return value

    def name(self, module: object, attribute: object) -> Name:
        if not isinstance(module, str) or not isinstance(attribute, str):
            self.damaged("a global without a name")
        if max(len(module), len(attribute)) > MAX_NAME:
            self.damaged(f"a name of over {MAX_NAME} characters")
        name = f"{module}.{attribute}"
        if name not in self.accepted:
            for beginning, what in REFUSED_MODELS.items():
                if name.startswith(beginning):
                    raise UserError(f"it holds {what}")
            self.refuse(name)
        return Name(name)

    def refuse(self, name: str) -> NoReturn:
        printable = name.encode("unicode_escape").decode("ascii")
        raise UserError(
            f"asks for {printable}, which is not among the names that a YOLOv5 file needs; it was "
            "not run"
        )

    def record(self, callee: object, arguments: tuple[Any, ...]) -> Any:
        if not isinstance(callee, Name):
            self.damaged("a call of something that is no global")
        if callee.name == ORDERED_DICT:
            if arguments:
                self.damaged("an OrderedDict with arguments")
            return {}
        if callee.name in SETS:
            # No copy: copies of one list, made over and over, would fill the memory.
            if len(arguments) != 1 or not isinstance(arguments[0], list):
                self.damaged("a set made of something else than one list")
            return arguments[0]
        if callee.name in GETATTR and not _is_known_attribute(arguments):
            self.refuse(callee.name)
        return Record(callee.name, arguments)

    def set_pairs(self, target: Any, items: list[Any]) -> None:
        if not isinstance(target, dict) or len(items) % 2:
            self.damaged("items set on something that is no dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str):
                self.numeric_keys += 1
                if not isinstance(key, int) or self.numeric_keys > MAX_NUMERIC_KEYS:
                    self.damaged(f"dict keys that no weights file needs, such as {brief(key)}")
            target[key] = value

    def extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            self.damaged("items appended to something that is no list")
        self.stack[-1].extend(items)

    # Opcodes.

    def protocol(self) -> None:
        version = self.take(1)[0]
        if not LOWEST_PROTOCOL <= version <= HIGHEST_PROTOCOL:
            raise UserError(
                f"pickle protocol {version}; {LOWEST_PROTOCOL} to {HIGHEST_PROTOCOL} are read"
            )

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def long(self) -> None:
        length = self.take(1)[0]
        if length > MAX_INTEGER_BYTES:
            self.damaged(f"an integer of {length} bytes")
        self.stack.append(int.from_bytes(self.take(length), "little", signed=True))

    def append(self) -> None:
        value = self.stack.pop()
        self.extend([value])

    def appends(self) -> None:
        items = self.pop_to_mark()
        self.extend(items)

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.set_pairs(self.stack[-1], [key, value])

    def set_items(self) -> None:
        items = self.pop_to_mark()
        self.set_pairs(self.stack[-1], items)

    def memoize(self) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def get(self, form: str) -> None:
        index = self.take_number(form)
        if index not in self.memo:
            self.damaged(f"memo entry {index} is absent")
        self.stack.append(self.memo[index])

    def put(self, form: str) -> None:
        self.memo[self.take_number(form)] = self.stack[-1]

    def push_text(self, form: str) -> None:
        self.stack.append(str(self.take(self.take_number(form)), "utf-8"))

    def push_bytes(self, form: str) -> None:
        self.stack.append(bytes(self.take(self.take_number(form))))

    def push_tuple(self, length: int) -> None:
        start = len(self.stack) - length
        if start < 0:
            self.damaged("a tuple longer than the stack")
        self.stack[start:] = [tuple(self.stack[start:])]

    def push_marked_tuple(self) -> None:
        items = self.pop_to_mark()
        self.stack.append(tuple(items))

    def global_line(self) -> None:
        module, attribute = self.take_line(), self.take_line()
        self.stack.append(self.name(module, attribute))

    def global_stack(self) -> None:
        attribute, module = self.stack.pop(), self.stack.pop()
        self.stack.append(self.name(module, attribute))

    def call(self) -> None:
        arguments = self.pop_tuple()
        self.stack.append(self.record(self.stack.pop(), arguments))

    def call_with_keywords(self) -> None:
        keywords = self.stack.pop()
        if not isinstance(keywords, dict) or keywords:
            self.damaged("a call with keyword arguments")
        self.call()

    def build(self) -> None:
        """Store a state in a record; a dict keeps its items only, all that is of use here."""
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, Record) and target.state is None:
            target.state = state
        elif not isinstance(target, dict) or not isinstance(state, dict):
            self.damaged("a state for something that takes none, or takes it once")

    def persistent(self) -> None:
        if self.persistent_load is None:
            self.damaged("a persistent id, which this file cannot have")
        self.stack.append(self.persistent_load(self.stack.pop()))


def _is_known_attribute(arguments: tuple[Any, ...]) -> bool:
    """Return whether getattr is asked for one of the few attributes that a file may name so."""
    if arguments[1:] == ("forward",):
        return isinstance(arguments[0], Name) and arguments[0].name == DETECT
    return arguments[1:] in [(name,) for name in FUSED_METHODS]


_STOP = ord(".")
_OPCODES: dict[int, Callable[[_Machine], None]] = {
    0x80: _Machine.protocol,
    0x95: lambda machine: machine.take_number("<Q"),  # a frame's length, of use to streams only
    ord("("): _Machine.mark,
    ord("N"): lambda machine: machine.stack.append(None),
    0x88: lambda machine: machine.stack.append(True),
    0x89: lambda machine: machine.stack.append(False),
    ord("K"): lambda machine: machine.stack.append(machine.take_number("<B")),
    ord("M"): lambda machine: machine.stack.append(machine.take_number("<H")),
    ord("J"): lambda machine: machine.stack.append(machine.take_number("<i")),
    ord("G"): lambda machine: machine.stack.append(machine.take_number(">d")),
    0x8A: _Machine.long,
    0x8C: lambda machine: machine.push_text("<B"),
    ord("X"): lambda machine: machine.push_text("<I"),
    0x8D: lambda machine: machine.push_text("<Q"),
    ord("C"): lambda machine: machine.push_bytes("<B"),
    ord("B"): lambda machine: machine.push_bytes("<I"),
    0x8E: lambda machine: machine.push_bytes("<Q"),
    0x96: lambda machine: machine.push_bytes("<Q"),  # a bytearray
    ord("]"): lambda machine: machine.stack.append([]),
    ord("}"): lambda machine: machine.stack.append({}),
    ord(")"): lambda machine: machine.stack.append(()),
    0x8F: lambda machine: machine.stack.append([]),  # a set
    ord("a"): _Machine.append,
    ord("e"): _Machine.appends,
    0x90: _Machine.appends,  # to a set
    ord("s"): _Machine.set_item,
    ord("u"): _Machine.set_items,
    ord("t"): _Machine.push_marked_tuple,
    0x85: lambda machine: machine.push_tuple(1),
    0x86: lambda machine: machine.push_tuple(2),
    0x87: lambda machine: machine.push_tuple(3),
    ord("q"): lambda machine: machine.put("<B"),
    ord("r"): lambda machine: machine.put("<I"),
    0x94: _Machine.memoize,
    ord("h"): lambda machine: machine.get("<B"),
    ord("j"): lambda machine: machine.get("<I"),
    ord("c"): _Machine.global_line,
    0x93: _Machine.global_stack,
    ord("R"): _Machine.call,
    0x81: _Machine.call,  # of a class
    0x92: _Machine.call_with_keywords,
    ord("b"): _Machine.build,
    ord("Q"): _Machine.persistent,
}
