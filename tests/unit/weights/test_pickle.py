"""The pickle reader: what it reads, what it refuses, and that nothing of it can run."""

import gc
import itertools
import shutil
import sys
import time
import tracemalloc

import pytest

from duet.models.stored import spec_of_weights
from duet.utils.errors import UserError
from duet.utils.weights.__main__ import describe
from duet.utils.weights.load import load_weights
from duet.utils.weights.pickle_reader import MAX_OPCODES, Name, Record, read_pickle
from tests.foreign_files import Call, Global, Raw, dump, emit
from tests.unit.weights.hostile_files import CONTAINERS, FILES, PICKLES


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -1, 255, 2**40, 0.5, "", "Zelle ä", [], [1, [2]], (), (1, 2, 3, 4),
     {}, {"a": {"b": [None]}, 3: "c"}],
)  # fmt: skip
def test_plain_values_round_trip(value):
    assert read_pickle(dump(value)) == value


def test_calls_and_states_become_records():
    state = {"__class__": "os.system", "__setstate__": Global("torch.Size"), "__dict__": {"a": 1}}
    record = read_pickle(dump(Call("torch.Size", ((2, 3),), state)))
    assert type(record) is Record
    assert (record.kind, record.arguments) == ("torch.Size", ((2, 3),))
    assert record.state == {**state, "__setstate__": Name("torch.Size")}


def test_ordered_dict_becomes_a_dict_and_set_a_list():
    filled = Raw(emit(Call("collections.OrderedDict")) + b"(X\x01\x00\x00\x00aK\x01u}b")
    assert read_pickle(dump(filled)) == {"a": 1}
    assert read_pickle(dump(Call("builtins.set", ([1, 2],)))) == [1, 2]


ATTACKS = {
    "os.system": lambda command: Call("os.system", (command,)),
    "posix.system": lambda command: Call("posix.system", (command,)),
    "builtins.eval": lambda command: Call(
        "builtins.eval", (f"__import__('os').system({command!r})",)
    ),
    "builtins.exec": lambda command: Call("builtins.exec", (f"import os; os.system({command!r})",)),
    "builtins.getattr": lambda command: Call("builtins.getattr", (Global("os.path"), "os")),
    "subprocess.Popen": lambda command: Call("subprocess.Popen", (["sh", "-c", command],)),
    "torch.load": lambda command: Call("torch.load", (command,)),
    "torch.nn.modules.os.system": lambda command: Call("torch.nn.modules.os.system", (command,)),
    "models.yolo.Model.__init__": lambda command: Call("models.yolo.Model.__init__", (command,)),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_unaccepted_global_is_named_and_not_run(tmp_path, name):
    canary = tmp_path / "canary"
    attack = ATTACKS[name](f"touch {canary}")
    nested = {"model": Call("collections.OrderedDict"), "ema": [(attack,)]}
    for value in (attack, nested, Call("collections.OrderedDict", (), {"__setstate__": attack})):
        with pytest.raises(UserError, match=f"asks for ({name}|os.path)"):
            read_pickle(dump(value))
    assert not canary.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("forward_fuse",),
        (Global("torch.Size"), "__class__"),
        ({}, "forward_fuse", None),
        ({}, "forward"),
        (Global("torch.Size"), "forward"),
        (Global("models.yolo.Detect"), "__init__"),
    ],
)
def test_getattr_is_accepted_only_for_forward_fuse(arguments):
    with pytest.raises(UserError, match="asks for builtins.getattr"):
        read_pickle(dump(Call("builtins.getattr", arguments)))
    record = read_pickle(dump(Call("builtins.getattr", ({}, "forward_fuse"))))
    assert (record.kind, record.arguments) == ("builtins.getattr", ({}, "forward_fuse"))


def test_bound_forward_of_a_segmentation_model_is_a_record():
    call = Call("builtins.getattr", (Global("models.yolo.Detect"), "forward"))
    record = read_pickle(dump(call))
    assert record.arguments == (Name("models.yolo.Detect"), "forward")


@pytest.mark.parametrize(
    ("opcodes", "reason"),
    [
        (emit([1]) + emit({}) + b"b", "a state for something that takes none"),
        (emit(Global("torch.Size")) + emit({}) + b"b", "a state for something"),
        (emit(Call("torch.Size")) + emit("k") + emit(1) + b"s", "items set on something"),
        (emit({}) + emit((1,)) + emit(1) + b"s", "dict keys that no weights file needs"),
        (emit(Call("torch.Size")) + emit(1) + b"a", "items appended to something"),
        (emit("id") + b"Q", "a persistent id"),
        (b"Pid\n", "opcode PERSID"),
        (b"cos\nsystem\n", "asks for os.system"),
        (b"\x8c\x02os\x8c\x06system\x93", "asks for os.system"),
        # The whole dotted name is compared: no attribute of an accepted one is reached.
        (b"\x8c\x05torch\x8c\x0dSize.__base__\x93", "asks for torch.Size.__base__"),
        (emit(Call("torch.Size", ((1,),))) + emit(("x",)) + b"R", "a call of something that is no"),
        (emit("os.system") + emit(("x",)) + b"R", "a call of something that is no global"),
        (b"ios\nsystem\n", "opcode INST"),
        (b"\x82\x01", "opcode EXT1"),
        (b"I99999\n", "opcode INT"),
        (b"X\xff\xff\xff\xff", "but only 1 remain"),
        (b"X\x02\x00\x00\x00\xff\xff", "codec can't decode"),
        (b"h\x07", "memo entry 7 is absent"),
        (b"R", "pop from empty list"),
        (b"\x87", "more values than the stack has"),
        (b"(", "does not end with one value"),
        (b"", "does not end with one value"),
        (b"\x80\x06N", "pickle protocol 6"),
        (b"\x97", "opcode NEXT_BUFFER"),  # a buffer that is not in the file
        (b"c" + b"m" * 101 + b"\nSize\n", "a name of over 100 characters"),
    ],
)
def test_foreign_opcodes_are_refused(opcodes, reason):
    with pytest.raises(UserError, match=reason):
        read_pickle(b"\x80\x02" + opcodes + b".")


def test_excess_opcodes_end_the_reading(monkeypatch):
    monkeypatch.setattr("duet.utils.weights.pickle_reader.MAX_OPCODES", 1000)
    with pytest.raises(UserError, match="over 1,000 opcodes"):
        read_pickle(b"\x80\x02" + b"N" * 1001 + b".")
    assert MAX_OPCODES == 2_000_000


def test_reading_imports_nothing():
    before = set(sys.modules)
    names = ("models.common.Conv", "torch.nn.modules.conv.Conv2d", "oneflow.nn.Parameter")
    read_pickle(dump([Global(name) for name in names]))
    assert set(sys.modules) == before


SMALL, GROWTH = 20_000, 6
BYTES_PER_BYTE = 130  # measured 87 at worst: a memo entry for each byte
OWN_BYTES = 3_000_000  # an open zip, a copied description of 50,000 nodes
LONGEST_MESSAGE = 1_500  # the path of the file is a part of it


def _in_a_container(value, write):
    return lambda path, size: write(path, value(size))


# One reader reads the pickles of all containers, so that each is tried in one of them.
HOSTILE = FILES | {
    name: _in_a_container(value, write)
    for (name, value), write in zip(PICKLES.items(), itertools.cycle(CONTAINERS), strict=False)
}


def read(path):
    """Show a file and check the model that it describes, as far as it goes."""
    try:
        weights = load_weights(path)
        text = describe(weights)
        spec_of_weights(weights)
    except UserError as error:
        text = str(error)
        assert len(text) < LONGEST_MESSAGE
    return len(text)


def size_of(path):
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def seconds(path):
    """The least processor time of a few attempts, since others use the machine too.

    Without the collector of cycles, which comes when it likes.
    """
    gc.disable()
    taken = []
    while len(taken) < 3 and sum(taken) < 0.5:
        started = time.process_time()
        read(path)
        taken.append(time.process_time() - started)
    gc.enable()
    return min(taken)


def peak_bytes(path):
    tracemalloc.start()
    read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.fixture
def two_sizes(request, tmp_path):
    """Two files of an attack, the second larger."""
    paths = tmp_path / "small.safetensors.bin", tmp_path / "large.safetensors.bin"
    for path, size in zip(paths, (SMALL, SMALL * GROWTH), strict=True):
        HOSTILE[request.param](path, size)
    yield paths
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("two_sizes", HOSTILE, indirect=True)
def test_time_and_memory_grow_linearly_with_the_file(two_sizes):
    small, large = two_sizes
    grown = max(size_of(large) / size_of(small), 1)
    # Linear work grows 6 times, quadratic work 36 times. What takes no 10 ms is not measured.
    assert seconds(large) < 2.5 * grown * max(seconds(small), 0.01)
    for path in two_sizes:
        assert peak_bytes(path) < BYTES_PER_BYTE * size_of(path) + OWN_BYTES
