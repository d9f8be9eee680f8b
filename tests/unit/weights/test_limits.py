"""Hostile weights files take time and memory in proportion to their size, and end in one line."""

import gc
import itertools
import shutil
import subprocess
import sys
import time
import tracemalloc

import pytest

from duet.models.stored import spec_of_weights
from duet.utils.errors import UserError
from duet.utils.project import PROJECT
from duet.utils.weights.__main__ import describe
from duet.utils.weights.load import load_weights
from tests.unit.weights.hostile_files import CONTAINERS, FILES, PICKLES

SMALL, GROWTH = 20_000, 6
BYTES_PER_BYTE = 130  # measured 87 at worst: a memo entry for each byte
OWN_BYTES = 3_000_000  # an open zip, a copied description of 50,000 nodes
LONGEST_MESSAGE = 1_500  # the path of the file is a part of it


def _in_a_container(value, write):
    return lambda path, size: write(path, value(size))


# One reader reads the pickles of all containers, so that each is tried in one of them.
ATTACKS = FILES | {
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
        ATTACKS[request.param](path, size)
    yield paths
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("two_sizes", ATTACKS, indirect=True)
def test_time_and_memory_grow_no_faster_than_the_file(two_sizes):
    small, large = two_sizes
    grown = max(size_of(large) / size_of(small), 1)
    # Linear work grows 6 times, quadratic work 36 times. What takes no 10 ms is not measured.
    assert seconds(large) < 2.5 * grown * max(seconds(small), 0.01)
    for path in two_sizes:
        assert peak_bytes(path) < BYTES_PER_BYTE * size_of(path) + OWN_BYTES


def test_all_of_them_fit_into_an_address_space_of_one_gigabyte(tmp_path):
    """What tracemalloc does not see, in a process of its own; 400 MB are Python and NumPy."""
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from tests.unit.weights.hostile_files import FILES\n"
        "from duet.utils.errors import UserError\n"
        "from duet.utils.weights.load import load_weights\n"
        f"for index, (name, write) in enumerate(FILES.items()):\n"
        f"    write(Path({str(tmp_path)!r}) / str(index), {SMALL * GROWTH})\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "for index, name in enumerate(FILES):\n"
        f"    path = Path({str(tmp_path)!r}) / str(index)\n"
        "    try: load_weights(path)\n"
        "    except UserError as error: assert 'the memory' not in str(error), (name, error)\n"
        "print('read', len(FILES))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, timeout=120
    )
    assert ran.stdout.strip() == f"read {len(FILES)}", ran.stderr[-2000:]
