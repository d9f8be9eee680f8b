"""Processes that one command starts: how many, what is refused, signals, codes, what is left."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from duet import backend
from duet.backend.devices import own_device
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.cli.val_config import parse_val_flags
from duet.utils.errors import UserError
from duet.utils.processes import launch
from duet.utils.processes.launch import job_code, run_ranks
from duet.utils.processes.ranks import joined
from duet.utils.processes.suspend import StopRequests
from tests.environments import wait_until

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


def test_rank_started_by_a_cluster_starts_no_ranks(started, monkeypatch):
    for name, value in {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    launch_train("--batch", "4")
    assert started == []
    with pytest.raises(UserError, match="--batch-size 5 is the total over 2"):
        launch_train("--batch", "5")


@pytest.mark.parametrize("missing", ["MASTER_ADDR", "MASTER_PORT"])
def test_rank_without_a_meeting_place_fails_at_once(rank, missing, monkeypatch):
    rank(1, 2)
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.delenv(missing)
    with (
        pytest.raises(UserError, match=f"{missing} is not; set MASTER_ADDR and"),
        joined(None, "", 600),
    ):
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
def test_ranks_are_started_on_request_without_a_launcher(
    started, rank, flags, launched, number, caplog
):
    caplog.set_level("INFO")
    if launched:
        rank(1, launched)
    with contextlib.suppress(SystemExit):
        launch_train(*flags, stop=StopRequests())
    assert [call[2]["WORLD_SIZE"] for call in started] == ([str(number)] if number else [])
    assert ("in place of DataParallel" in caplog.text) is (number == 2)


def test_multi_process_val_takes_any_batch_and_sigterm(started):
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit):
            launch_as(parse_val_flags(["--weights", "W", "--nproc", "3", "--batch", "5"]))
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_ranks_run_the_same_command_with_the_users_threads(started, monkeypatch, caplog):
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
    ("launched", "flags", "message"),
    [
        (0, ["--device", "0,0"], "--device 0,0: use different GPUs"),
        (0, ["--device", "0", "--nproc", "2"], "2 processes need 2 devices, not 1"),
        (0, ["--nproc", "2", "--device", "cpu", "--batch", "5"], "use 4 or 6"),
        (0, ["--nproc", "2", "--compile", "--sync-bn"], "remove one of them"),
        (1, ["--nproc", "2"], "--nproc 2 asks for 2 processes, but a launcher started 1"),
        (2, ["--device", "0,1,2"], "0,1,2 asks for 3 processes, but a launcher started 2"),
        (2, ["--batch", "7"], "--batch-size 7 is the total over 2"),
    ],
)
def test_flags_unfit_for_the_process_count_are_refused(started, rank, launched, flags, message):
    if launched:
        rank(0, launched)
    with pytest.raises(UserError, match=message):
        launch_train(*flags)
    assert started == []


GPUS = ["cuda:0", "cuda:1", "cpu"]


def test_each_rank_takes_the_device_at_its_index(rank):
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


def test_oneflow_refuses_device_beyond_its_collectives(rank):
    if backend.use() != "oneflow":
        pytest.skip("PyTorch exchanges tensors of any device")
    rank(1, 2)
    backend.dist.start("cuda:1", 10.0)
    with pytest.raises(backend.select.BackendError, match="cuda:3.*local rank 1.*CUDA_VISIBLE_DEV"):
        backend.dist.start("cuda:3", 10.0)


SECONDS = 60  # a limit against hanging

# Each rank needs a while to import what it needs.
RANK = """
import os, sys, time
from pathlib import Path
Path(sys.argv[1] + os.environ["RANK"]).write_text(str(os.getpid()))
time.sleep(1)
from duet.utils.processes.command import run_command
"""
WAITING = RANK + "run_command(lambda: time.sleep(60), several=True)"
LISTENING = (
    RANK
    + """
from duet.utils.processes.suspend import Suspended, listening
def main():
    with listening("", None) as stop:
        while not (cause := stop.cause()):
            time.sleep(0.01)
        raise Suspended(cause)
run_command(main, several=True)
"""
)
COMMAND = """
import os, signal, sys
from duet.utils.processes.command import run_command
from duet.utils.processes.launch import run_ranks
from duet.utils.processes.suspend import listening
def main():
    with listening("", None) as stop:
        for number in sys.argv[3:]:
            os.kill(os.getpid(), int(number))
        ranks = [sys.executable, "-c", *sys.argv[1:3]]
        sys.exit(run_ranks(ranks, os.environ["YOLO_BACKEND"], {"WORLD_SIZE": "2"}, stop))
signal.signal(signal.SIGINT, signal.default_int_handler)  # else as pytest was started
run_command(main)
"""


class Command:
    """A command with two ranks that have started.

    Args:
        folder: for the numbers of their processes.
        rank: a program.
        numbers: of the signals that the command gets just before it starts them.
    """

    def __init__(self, folder: Path, rank: str, *numbers: int) -> None:
        files = folder / "rank"
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, rank, files, *(str(int(number)) for number in numbers)],
            env={**os.environ, "YOLO_BACKEND": backend.use(), "PYTHONPATH": "."},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        paths = [Path(f"{files}{place}") for place in range(2)]
        wait_until(lambda: all(x.exists() and x.read_text() for x in paths), self.process)
        self.ranks = [int(path.read_text()) for path in paths]

    def end(self) -> tuple[int, str, str]:
        """Return exit code, output and errors."""
        output, errors = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, output, errors


def test_repeated_signals_are_one_request_to_the_ranks(tmp_path):
    command = Command(tmp_path, LISTENING)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM):
        command.process.send_signal(number)
    assert command.end() in ((75, "SIGTERM\n", ""), (75, "SIGUSR1\n", ""))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_signal_before_the_ranks_start_is_passed_on(tmp_path, number):
    assert Command(tmp_path, LISTENING, number).end() == (75, f"{number.name}\n", "")


def test_control_c_before_the_ranks_listen_is_answered(tmp_path):
    command = Command(tmp_path, LISTENING)
    command.process.send_signal(signal.SIGINT)
    assert command.end() == (130, "", "interrupted\n")


def test_signal_to_importing_ranks_is_kept(tmp_path):
    command = Command(tmp_path, LISTENING)
    for rank in command.ranks:
        os.kill(rank, signal.SIGTERM)
    assert command.end() == (75, "SIGTERM\n", "")


def test_killed_command_takes_its_ranks_along(tmp_path):
    command = Command(tmp_path, WAITING)
    command.process.kill()
    command.end()  # returns when nobody can write to it any more


@pytest.mark.parametrize(
    ("codes", "code"),
    [([75, 75], 75), ([-9, 1], 1), ([2, 1], 2), ([1, 130], 130), ([None, 0], 1), ([75, -9], 75)],
)
def test_job_ends_with_the_code_that_explains_the_failure(codes, code):
    assert job_code(codes) == code


def run_program(program: str, *arguments: object, number: int = 2) -> int:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return run_ranks(command, backend.use(), {"WORLD_SIZE": str(number)})


ENVIRONMENT = """
import json, os, sys
from pathlib import Path
folder = Path(os.environ["DUET_MEETING_FOLDER"])
found = dict(os.environ, mode=oct(folder.stat().st_mode), session=os.getsid(0) == os.getpid())
Path(sys.argv[1], os.environ["RANK"]).write_text(json.dumps(found))
"""


def test_ranks_know_their_places_and_meet_privately(tmp_path, monkeypatch):
    monkeypatch.setenv("DUET_STATUS_FILE", "unused")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")  # of jobs on several machines
    assert run_program(ENVIRONMENT, tmp_path, number=3) == 0
    found = [json.loads((tmp_path / str(place)).read_text()) for place in range(3)]
    for place, rank in enumerate(found):
        assert rank["RANK"] == rank["LOCAL_RANK"] == str(place)
        assert rank["WORLD_SIZE"] == rank["LOCAL_WORLD_SIZE"] == "3"
        assert rank["mode"] == "0o40700" and rank["session"]
        assert "DUET_STATUS_FILE" not in rank
        if backend.use() == "torch":
            assert rank["GLOO_SOCKET_IFNAME"] == rank["NCCL_SOCKET_IFNAME"] == "lo"
    assert not Path(found[0]["DUET_MEETING_FOLDER"]).exists()


FAILING = """
import os, sys, time
if os.environ["RANK"] == "1":
    {}
time.sleep(100)
"""


@pytest.mark.parametrize(
    ("end", "code", "line"),
    [
        ("sys.exit(3)", 3, "\nerror: rank 1 ended with exit code 3; ending the job\n"),
        ("sys.exit(2)", 2, ""),  # a mistake of the user's, which the rank has reported
        ("os.kill(os.getpid(), 9)", 1, "\nerror: rank 1 was killed by SIGKILL; ending the job\n"),
    ],
)
def test_other_ranks_end_soon_after_a_failed_one_is_named(capfd, end, code, line):
    before = time.monotonic()
    assert run_program(FAILING.format(end)) == code
    assert time.monotonic() - before < 15
    assert capfd.readouterr().err == line


SAVING = """
import os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, lambda *_: Path(sys.argv[1] + "-saves" + os.environ["RANK"]).touch())
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
Path(sys.argv[1] + os.environ["RANK"]).write_text(str(os.getpid()))
time.sleep(60)
"""


def test_second_control_c_ends_ranks_while_saving(tmp_path):
    command = Command(tmp_path, SAVING)
    command.process.send_signal(signal.SIGINT)
    wait_until(lambda: all((tmp_path / f"rank-saves{place}").exists() for place in range(2)))
    with pytest.raises(subprocess.TimeoutExpired):
        command.process.communicate(timeout=1)  # it waits for them
    command.process.send_signal(signal.SIGINT)
    assert command.end() == (130, "", "interrupted\n")
    for rank in command.ranks:
        with pytest.raises(ProcessLookupError):
            os.kill(rank, 0)
