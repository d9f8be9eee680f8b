"""Read pickle opcodes as inert records; nothing runs, and nothing is imported.

`pickletools` splits the bytes into opcodes and arguments. A global becomes a `Name`, its text; a
call becomes a `Record` of name and arguments, with its state. No object that the pickle chooses is
called, built, hashed or compared.
"""

import io
import pickletools
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from duet.utils.errors import UserError, brief

MAX_OPCODES = 2_000_000  # yolov5n has 34 thousand
MAX_NUMERIC_KEYS = 5_000  # unlike strings, numbers can be chosen to collide in a dict
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


PersistentLoad = Callable[[object], object]


def read_pickle(data: bytes, persistent_load: PersistentLoad | None = None) -> object:
    """Read a pickle of protocol 2 to 5.

    Dicts, lists, tuples, strings, bytes and numbers are kept, an OrderedDict becomes a
    dict, a set a list, and everything else a `Name` or `Record`.

    Args:
        persistent_load: returns the value of a persistent ID; None: there are none.

    Raises:
        UserError: damaged, over a limit, or with a global that is not accepted.
    """
    file = io.BytesIO(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in names
            return _Machine(persistent_load).run(file)
    except UserError:
        raise
    except (IndexError, ValueError) as error:  # the latter of pickletools
        reason = brief(str(error))[1:-1]
        raise UserError(f"damaged pickle before byte {file.tell()}: {reason}") from error


class _Machine:
    """The pickle stack machine; most methods are one opcode, found through `_OPCODES`."""

    def __init__(self, persistent_load: PersistentLoad | None) -> None:
        self.persistent_load = persistent_load
        self.stack: list[object] = []
        self.below: list[list[object]] = []  # stacks under the marks
        self.memo: dict[int, object] = {}
        self.numeric_keys = 0

    def run(self, file: io.BytesIO) -> object:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(file)):
            if number >= MAX_OPCODES:
                raise UserError(f"over {MAX_OPCODES:,} opcodes; no weights file needs as many")
            if opcode.name in _PUSHED:
                self.stack.append(argument)
            elif opcode.name in _OPCODES:
                _OPCODES[opcode.name](self, argument)
            elif opcode.name != "STOP":
                damaged(f"opcode {opcode.name}, which no weights file needs")
        if len(self.stack) != 1 or self.below:
            damaged("it does not end with one value")
        return self.stack[0]

    # Shared by several opcodes.

    def pop(self, number: int) -> list[object]:
        start = len(self.stack) - number
        if start < 0:
            damaged("it takes more values than the stack has")
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def pop_to_mark(self) -> list[object]:
        items = self.stack
        self.stack = self.below.pop()
        return items

    def name(self, module: object, attribute: object) -> Name:
        if not isinstance(module, str) or not isinstance(attribute, str):
            damaged("a global without a name")
        if max(len(module), len(attribute)) > MAX_NAME:
            damaged(f"a name of over {MAX_NAME} characters")
        name = f"{module}.{attribute}"
        for beginning, what in REFUSED_MODELS.items():
            if name.startswith(beginning):
                raise UserError(f"it holds {what}")
        if not ACCEPTED.fullmatch(name):
            refuse(name)
        return Name(name)

    def record(self, callee: object, arguments: object) -> object:
        if not isinstance(callee, Name):
            damaged("a call of something that is no global")
        if not isinstance(arguments, tuple):
            damaged("arguments that are no tuple")
        if callee.name == ORDERED_DICT:
            if arguments:
                damaged("an OrderedDict with arguments")
            return {}
        if callee.name in SETS:
            # No copy: copies of one list, made over and over, would fill the memory.
            if len(arguments) != 1 or not isinstance(arguments[0], list):
                damaged("a set made of something else than one list")
            return arguments[0]
        if callee.name in GETATTR and not _is_known_attribute(arguments):
            refuse(callee.name)
        return Record(callee.name, arguments)

    def set_pairs(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            damaged("items set on something that is no dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str):
                self.numeric_keys += 1
                if not isinstance(key, int) or self.numeric_keys > MAX_NUMERIC_KEYS:
                    damaged(f"dict keys that no weights file needs, such as {brief(key)}")
            target[key] = value

    def extend(self, items: list[object]) -> None:
        if not isinstance(self.stack[-1], list):
            damaged("items appended to something that is no list")
        self.stack[-1].extend(items)

    # Opcodes, with their arguments.

    def protocol(self, version: int) -> None:
        if not LOWEST_PROTOCOL <= version <= HIGHEST_PROTOCOL:
            raise UserError(
                f"pickle protocol {version}; {LOWEST_PROTOCOL} to {HIGHEST_PROTOCOL} are read"
            )

    def mark(self, _: None) -> None:
        self.below.append(self.stack)
        self.stack = []

    def get(self, index: int) -> None:
        if index not in self.memo:
            damaged(f"memo entry {index} is absent")
        self.stack.append(self.memo[index])

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def push_tuple(self, items: list[object]) -> None:
        self.stack.append(tuple(items))

    def global_line(self, names: str) -> None:
        module, _, attribute = names.partition(" ")
        self.stack.append(self.name(module, attribute))

    def global_stack(self, _: None) -> None:
        attribute, module = self.stack.pop(), self.stack.pop()
        self.stack.append(self.name(module, attribute))

    def call(self, _: None) -> None:
        arguments = self.stack.pop()
        self.stack.append(self.record(self.stack.pop(), arguments))

    def build(self, _: None) -> None:
        """Store a state in a record; a dict ignores it."""
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, Record) and target.state is None:
            target.state = state
        elif not isinstance(target, dict) or not isinstance(state, dict):
            damaged("a state for something that takes none, or takes it once")

    def persistent(self, _: None) -> None:
        if self.persistent_load is None:
            damaged("a persistent id, which this file cannot have")
        self.stack.append(self.persistent_load(self.stack.pop()))


def damaged(reason: str) -> NoReturn:
    raise UserError(f"damaged pickle: {reason}")


def refuse(name: str) -> NoReturn:
    if name.startswith(OTHER_PACKAGE):
        raise UserError(f"it holds {ANCHOR_FREE_ONLY}")
    printable = name.encode("unicode_escape").decode("ascii")
    raise UserError(
        f"asks for {printable}, which is not among the names that a YOLOv5 file needs; it was "
        "not run"
    )


def _is_known_attribute(arguments: tuple[object, ...]) -> bool:
    """Return whether getattr asks for one of the few attributes that a file may name."""
    if arguments[1:] == ("forward",):
        return isinstance(arguments[0], Name) and arguments[0].name == DETECT
    return arguments[1:] in [(name,) for name in FUSED_METHODS]


# Opcodes by their names in `pickletools`. Those whose argument is the value:
_PUSHED = (
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
    "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
    "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8",
)  # fmt: skip
_OPCODES: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": _Machine.protocol,
    "FRAME": lambda machine, length: None,  # of use to streams only
    "MARK": _Machine.mark,
    "NONE": lambda machine, _: machine.stack.append(None),
    "NEWTRUE": lambda machine, _: machine.stack.append(True),
    "NEWFALSE": lambda machine, _: machine.stack.append(False),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "EMPTY_SET": lambda machine, _: machine.stack.append([]),
    "APPEND": lambda machine, _: machine.extend(machine.pop(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.pop_to_mark()),
    "ADDITEMS": lambda machine, _: machine.extend(machine.pop_to_mark()),
    "SETITEM": lambda machine, _: machine.set_pairs(machine.pop(2)),
    "SETITEMS": lambda machine, _: machine.set_pairs(machine.pop_to_mark()),
    "TUPLE": lambda machine, _: machine.push_tuple(machine.pop_to_mark()),
    "TUPLE1": lambda machine, _: machine.push_tuple(machine.pop(1)),
    "TUPLE2": lambda machine, _: machine.push_tuple(machine.pop(2)),
    "TUPLE3": lambda machine, _: machine.push_tuple(machine.pop(3)),
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": lambda machine, _: machine.put(len(machine.memo)),
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "GLOBAL": _Machine.global_line,
    "STACK_GLOBAL": _Machine.global_stack,
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.call,
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.persistent,
}


# The globals that a weights file may name; any other is refused. These are patterns for names, and
# nothing is imported. The classes are from the modules in which the public YOLOv5 and One-YOLOv5
# and their frameworks define layers; a class that is accepted can be read, but not always built.

STORAGE_DTYPES = {  # torch storages -> the dtype of their bytes, little-endian
    "torch.FloatStorage": "<f4",
    "torch.DoubleStorage": "<f8",
    "torch.HalfStorage": "<f2",
    "torch.BFloat16Storage": "bfloat16",
    "torch.LongStorage": "<i8",
    "torch.IntStorage": "<i4",
    "torch.ShortStorage": "<i2",
    "torch.CharStorage": "|i1",
    "torch.ByteStorage": "|u1",
    "torch.BoolStorage": "|b1",
}
UNTYPED_STORAGE = "torch.storage.UntypedStorage"  # of tensors whose dtype has none of the above

REFUSED_MODELS = {  # prefix of a name -> kind of file, and the next step
    "models.common.AutoShape": "a model wrapped for inference; save the model in it (its .model)",
    "models.common.DetectMultiBackend": "a model wrapped for inference; save the one in it",
    "models.experimental.Ensemble": "an ensemble of models; give the file of one of them",
}
# For files of the ultralytics package that are not supported.
ANCHOR_FREE_ONLY = (
    "a model of the ultralytics package that is not read here: of that package, detectors of "
    "YOLOv5u and YOLOv8 are; give one of these, or a model of the public YOLOv5"
)
OTHER_PACKAGE = "ultralytics."


# torchvision's transforms define a classifier's preprocessing: they are read as records and
# compared with ours.
ACCEPTED = re.compile(
    r"""
        collections\.OrderedDict | (builtins|__builtin__)\.(set|getattr)
        | pathlib\.(Posix|Windows)?Path | argparse\.Namespace
        | numpy\.(ndarray|dtype) | _codecs\.encode
        | numpy\._?core\.(multiarray\.(_reconstruct|scalar) | numeric\._frombuffer)
        | models\.(yolo|common|experimental)\.[A-Z]\w* | models\.yolo\.Detect\.forward
        | utils\.augmentations\.[A-Z]\w*
        | (torch|oneflow)\.nn\.modules\.\w+\.[A-Z]\w*
        | torch\.(Size | device | \w+Storage | (b?float|u?int)\d\w* | bool)
        | torch\.storage\.UntypedStorage | torch\.nn\.parallel\.data_parallel\.DataParallel
        | torch\._utils\._rebuild_(parameter | tensor(_v[23])?)
        | torchvision\.transforms\.(transforms|functional)\.[A-Z]\w*
        | oneflow\.(Size | Tensor | nn\.(parameter\.)?Parameter)
        | ultralytics\.nn\.tasks\.DetectionModel
        | ultralytics\.nn\.modules\.((conv|block|head)\.)?[A-Z]\w*
        | ultralytics\.(yolo\.)?utils\.IterableSimpleNamespace
    """,
    re.VERBOSE | re.ASCII,
)
