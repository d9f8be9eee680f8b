"""How many processes a command line asks for, and which requests are refused."""

from __future__ import annotations

import contextlib
import signal
import sys

import pytest

from duet import backend
from duet.backend.devices import own_device
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.cli.val_config import parse_val_flags
from duet.utils.errors import UserError
from duet.utils.processes import launch
from duet.utils.processes.ranks import joined
from duet.utils.processes.suspend import StopRequests

LAUNCHERS = {
    "torch": {"TORCHELASTIC_RUN_ID": "1"},
    "oneflow": {"MASTER_ADDR": "127.0.0.1", "GLOG_log_dir": "log"},
}


@pytest.fixture
def rank(monkeypatch):
    """Make this process one of a launcher's."""

    def become(rank: int, world_size: int) -> None:
        variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)}
        for name, value in {**variables, **LAUNCHERS[backend.use()]}.items():
            monkeypatch.setenv(name, value)

    return become


@pytest.fixture
def started(monkeypatch):
    """The commands that would be run."""
    commands = []
    monkeypatch.setattr(launch, "run_ranks", lambda *call: commands.append(call) or 75)
    monkeypatch.setattr(sys, "argv", ["train.py", "--nproc", "2", "--device", "cpu", "--nproc=2"])
    return commands


def launch_train(*flags, stop=None):
    launch_as(parse_train_flags(flags), stop)


def launch_as(config, stop=None):
    launch.launch(config.backend, config.device, config.nproc, config.check_processes, stop)


def test_a_rank_that_a_cluster_started_without_a_launcher_is_not_started_anew(started, monkeypatch):
    for name, value in {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    launch_train("--batch", "4")
    assert started == []
    with pytest.raises(UserError, match="--batch-size 5 is the total over 2"):
        launch_train("--batch", "5")


@pytest.mark.parametrize("missing", ["MASTER_ADDR", "MASTER_PORT"])
def test_ranks_that_do_not_know_where_the_others_are_do_not_wait_for_them(
    rank, missing, monkeypatch
):
    rank(1, 2)
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.delenv(missing)
    with pytest.raises(UserError, match=f"{missing} is not"), joined(None, "", 600):
        pass


@pytest.mark.parametrize(
    ("flags", "launched", "number"),
    [
        ([], 0, 0),
        (["--device", "0"], 0, 0),
        (["--device", "0,1", "--batch", "16"], 0, 2),
        (["--nproc", "3", "--device", "cpu", "--batch", "6"], 0, 3),
        ([], 2, 0),
        (["--nproc", "2"], 2, 0),
    ],
)
def test_processes_are_started_where_several_are_asked_for_and_no_launcher_has(
    started, rank, flags, launched, number, caplog
):
    caplog.set_level("INFO")
    if launched:
        rank(1, launched)
    with contextlib.suppress(SystemExit):
        launch_train(*flags, stop=StopRequests())
    assert [call[2]["WORLD_SIZE"] for call in started] == ([str(number)] if number else [])
    assert ("in place of DataParallel" in caplog.text) is (number == 2)


def test_a_validation_in_several_processes_may_have_any_batch_and_ends_at_sigterm(started):
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit):
            launch_as(parse_val_flags(["--weights", "W", "--nproc", "3", "--batch", "5"]))
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_several_run_the_same_command_line_and_share_the_cores(started, monkeypatch, caplog):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    caplog.set_level("INFO")
    stop = StopRequests()
    with pytest.raises(SystemExit) as end:
        launch_train("--nproc", "2", "--device", "cpu", stop=stop)
    assert end.value.code == 75
    command = [sys.executable, "-u", *sys.argv]
    environment = {"WORLD_SIZE": "2", "OMP_NUM_THREADS": "3"}
    assert started == [(command, backend.use(), environment, stop)]
    assert "starting 2 processes" in caplog.text and "DataParallel" not in caplog.text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--device", "0,0"], "--device 0,0: give different GPUs"),
        (["--device", "0", "--nproc", "2"], "2 processes need 2 devices, not 1"),
        (["--nproc", "2", "--device", "cpu", "--batch", "5"], "use 4 or 6"),
        (["--nproc", "2", "--compile", "--sync-bn"], "leave one of them out"),
    ],
)
def test_what_several_processes_cannot_honour_is_refused(started, flags, message):
    with pytest.raises(UserError, match=message):
        launch_train(*flags)
    assert started == []


@pytest.mark.parametrize(
    ("world_size", "flags", "message"),
    [
        (1, ["--nproc", "2"], "--nproc 2, but a launcher started 1"),
        (2, ["--device", "0,1,2"], "names 3 devices, but a launcher started 2"),
        (2, ["--batch", "7"], "--batch-size 7 is the total over 2"),
    ],
)
def test_flags_that_differ_from_the_launcher_are_refused(rank, world_size, flags, message):
    rank(0, world_size)
    with pytest.raises(UserError, match=message):
        launch_train(*flags)


GPUS = ["cuda:0", "cuda:1", "cpu"]


def test_each_rank_takes_the_device_at_its_place(rank):
    assert own_device("", GPUS) == own_device("0", GPUS) == "cuda:0"
    rank(1, 2)
    assert own_device("", GPUS) == own_device("0,1", GPUS) == "cuda:1"
    assert own_device("cuda:1,cuda:0", GPUS) == "cuda:0"
    assert own_device("cpu", GPUS) == own_device("", ["cpu"]) == "cpu"


def test_more_ranks_than_devices_are_refused(rank):
    rank(2, 4)
    for name in ("", "0,1"):
        with pytest.raises(backend.BackendError, match="at least 3 processes.* provides 2: cuda:0"):
            own_device(name, GPUS)
    rank(1, 2)
    with pytest.raises(backend.BackendError, match="at least 2 processes.*'0' provides 1: cuda:0"):
        own_device("0", GPUS)
    rank(0, 1)
    with pytest.raises(backend.BackendError, match="'0,1' names 2 devices, but this is a single"):
        own_device("0,1", GPUS)


def test_oneflow_refuses_a_device_that_its_collectives_do_not_reach(rank):
    if backend.use() != "oneflow":
        pytest.skip("PyTorch exchanges tensors of any device")
    rank(1, 2)
    backend.dist.start("cuda:1", 10.0)
    with pytest.raises(backend.select.BackendError, match="cuda:3.*local rank 1.*CUDA_VISIBLE_DEV"):
        backend.dist.start("cuda:3", 10.0)
