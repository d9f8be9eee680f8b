"""Importing `backend` imports no framework; how many threads there are and how they wait."""

import os

import pytest

from duet import backend
from duet.backend import cores, system
from duet.backend.select import FRAMEWORKS
from duet.utils.processes.launch import rank_variables
from tests.environments import python

PACKAGES = {framework.package for framework in FRAMEWORKS.values()}


@pytest.mark.parametrize(
    "statement",
    [
        "from duet import backend",
        "from duet.backend import ops, nn, optim, fused, multi_tensor, autograd, amp, device",
        "from duet.backend import contract, select, processes, checks",
        "from duet.backend import ops; hasattr(ops, '__wrapped__'); repr(ops)",
    ],
)
def test_importing_backend_imports_no_framework(statement: str) -> None:
    code = f"{statement}\nimport sys\nassert not {PACKAGES} & set(sys.modules)"
    assert python("-c", code).returncode == 0


@pytest.mark.skipif(backend.use() != "torch", reason="PyTorch's compiler")
def test_training_without_compile_imports_no_compiler() -> None:
    code = "from duet import backend; backend.use(); import duet.models.training.loop, sys\n"
    code += "assert not {'torch._dynamo', 'sympy'} & set(sys.modules)"
    assert python("-c", code).returncode == 0


def test_use_draws_no_random_number() -> None:
    code = "import random; before = random.getstate(); from duet import backend; backend.use()\n"
    assert python("-c", code + "assert random.getstate() == before").returncode == 0


NAMES = (*cores.WAITING, *cores.THREADS)

LOADED = (
    "from duet import backend; backend.use(); print('libgomp' in open('/proc/self/maps').read())"
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_spin_count_reaches_libgomp_only_under_pytorch():
    """What libgomp says itself: it reads the variable when PyTorch loads it."""
    done = python("-c", LOADED, YOLO_BACKEND=backend.use(), OMP_DISPLAY_ENV="VERBOSE")
    has_openmp = backend.use() == "torch"
    assert done.stdout == f"{has_openmp}\n"
    assert (f"GOMP_SPINCOUNT = '{cores.SPINS}'" in done.stderr) == has_openmp


@pytest.mark.parametrize("name", cores.WAITING)
def test_users_wait_policy_is_kept(monkeypatch, name):
    monkeypatch.setenv(name, "7")
    cores.choose_threads()
    assert {other: os.environ.get(other) for other in cores.WAITING} == {
        **dict.fromkeys(cores.WAITING), name: "7"
    }  # fmt: skip


@pytest.mark.parametrize("name", [None, *cores.THREADS])
@pytest.mark.parametrize(("quota", "threads"), [("200000 100000", "2"), ("max 100000", None)])
def test_container_with_few_cores_gets_few_threads(monkeypatch, tmp_path, name, quota, threads):
    set_control_groups(monkeypatch, tmp_path, {"cpu.max": quota})
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    if name:
        monkeypatch.setenv(name, "5")
    cores.choose_threads()
    expected = {name: "5"} if name else {"OMP_NUM_THREADS": threads} if threads else {}
    found = cores.thread_variables()
    assert found == {"GOMP_SPINCOUNT": str(cores.SPINS), **expected}
    for variable in found:
        monkeypatch.delenv(variable)


def set_control_groups(monkeypatch, folder, files):
    """A container whose control group has these files."""
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text + "\n")
    monkeypatch.setattr(system, "CONTROL_GROUPS", folder)


@pytest.mark.parametrize(
    ("files", "usable"),
    [
        ({}, 64),
        ({"cpu.max": "150000 100000"}, 2),  # rounded up
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        ({"cpu.max": "broken"}, 64),
    ],
)
def test_container_quota_limits_usable_cores(monkeypatch, tmp_path, files, usable):
    set_control_groups(monkeypatch, tmp_path, files)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    assert cores.usable_cores() == cores.cores_of_rank() == usable


@pytest.mark.parametrize("users", [None, "2"])
def test_thread_count_of_the_launcher_is_no_user_choice(monkeypatch, users):
    monkeypatch.setattr(cores, "_are_asked_for", None)
    for variable in (*cores.THREADS, cores.DIVIDED):
        monkeypatch.delenv(variable, raising=False)
    if users:
        monkeypatch.setenv("OMP_NUM_THREADS", users)
    for name, value in rank_variables(2).items():
        monkeypatch.setenv(name, value)
    cores.choose_threads()
    assert cores.are_asked_for() == (users is not None)


COLLECTIONS = """
import gc
from duet.backend.system import age_objects, collector_paused
try:
    with collector_paused():
        assert not gc.isenabled()
        new = [[] for _ in range(10_000)]
        age_objects()
        raise ValueError
except ValueError:
    assert gc.isenabled()
oldest = set(map(id, gc.get_objects(2)))
assert oldest.issuperset(map(id, new)) and not gc.get_freeze_count()
gc.freeze()
frozen = gc.get_freeze_count()
age_objects()
assert gc.get_freeze_count() == frozen
"""


def test_paused_garbage_collector_skips_new_objects() -> None:
    """And it runs again after an error, and what a caller has frozen stays frozen."""
    assert python("-c", COLLECTIONS).returncode == 0
