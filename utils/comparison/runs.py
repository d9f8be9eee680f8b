"""One run of a cell: its process, measured from outside, and its record as a JSON document."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from duet.utils.comparison.load import LoadWatch
from duet.utils.comparison.settings import (
    REFERENCE,
    VARIANTS,
    Document,
    Settings,
    Turn,
    find_pythons,
)
from duet.utils.files.atomic import atomic_text_file, remove_unfinished
from duet.utils.files.json_files import read_json
from duet.utils.files.model_yamls import find_model
from duet.utils.files.regular import open_regular, read_bytes
from duet.utils.files.run_folder import RunLock
from duet.utils.processes.start import EXIT_USER_ERROR
from duet.utils.project import PROJECT, from_here, script
from duet.utils.report.results import read_results
from duet.utils.system.children import (
    ask_for_signal_when_parent_ends,
    child_options,
    signal_group,
)
from duet.utils.system.machine import descendants, ending_children, peak_kib_of_process

RUNS = "runs"
FROM_TRAIN = "framework", "device", "work", "means", "losses"  # of work.json
LOG_LINES = 15
MAX_BYTES = 1 << 35  # limit of a weights file
SAYS_ERROR = re.compile(r"(rank \d+: )?error: ")
POLL_SECONDS = 0.05
SECONDS_TO_END = 10
DEVICE_POLL_MILLISECONDS = 500
# Neither side rounds float32 to TF32, since OneFlow 0.9 and other trainers have no flag for it; the
# user's own setting takes precedence.
ALIKE = {"NVIDIA_TF32_OVERRIDE": "0"}


def record_path(folder: Path, turn: Turn) -> Path:
    return folder / RUNS / f"{turn.name}.json"


def load_record(folder: Path, turn: Turn) -> Document | None:
    """Return the record of a successful run; None if it has to run (again)."""
    try:
        record = read_json(record_path(folder, turn))
    except (OSError, ValueError):
        return None
    whole = isinstance(record, dict) and record.keys() >= {"failure", "load", *FROM_TRAIN}
    return record if whole and record["failure"] is None else None


def carry_out(settings: Settings, turn: Turn, folder: Path) -> Document:
    """Run a cell once, and write its record to disk before returning it."""
    run_folder = folder / RUNS / turn.name
    if run_folder.exists():  # left by an aborted attempt
        with RunLock() as lock:
            lock.take(run_folder)  # its process may not have ended yet
            shutil.rmtree(run_folder, ignore_errors=True)
    run_folder.mkdir(parents=True)
    remove_unfinished(run_folder.parent)
    log, load = run_folder.with_name(f"{run_folder.name}.log"), LoadWatch()
    command = train_command(settings, turn, run_folder)
    outcome = run_process(command, log, 60 * settings.timeout, devices_of(settings))
    record = describe_run(turn, command, outcome, log)
    if record["failure"] is None:
        add_what_train_wrote(record, run_folder, settings)
    record["load"] = {"others": load.others()}
    shutil.rmtree(run_folder / "weights", ignore_errors=True)  # large and not needed
    with atomic_text_file(record_path(folder, turn)) as file:
        json.dump(record, file, indent=1)
    return record


def train_command(settings: Settings, turn: Turn, run_folder: Path) -> list[str]:
    """Return the command of train.py as a user would write it."""
    cell = turn.cell
    python = find_pythons(settings.all_backends, settings.python)[cell.side]
    flags = {
        "backend": cell.side, "data": settings.data, "cfg": settings.cfg,
        "weights": settings.weights, "split": settings.train_part, "hyp": settings.hyp,
        "img": settings.image_size, "batch": cell.batch,
        "epochs": settings.warm_up_epochs + settings.epochs, "seed": settings.seed,
        "workers": settings.workers, "device": settings.device,
        "nproc": settings.processes if settings.processes > 1 else None,
        # The layout and the precision that both backends have; a variant may ask for others.
        "layout": "contiguous", "amp": "off",
        "project": from_here(run_folder.parent), "name": run_folder.name,
    }  # fmt: skip
    command = [str(from_here(Path(python))), *script("train")]
    for name, value in flags.items():
        if value is not None and (name, value) != ("hyp", ""):
            command += [f"--{name}", str(value)]
    return [*command, "--exist-ok", *REFERENCE, *VARIANTS[cell.variant].split()]


def devices_of(settings: Settings) -> str:
    """Return the devices of a run: without --device the first GPUs, one for each process."""
    return settings.device or ",".join(map(str, range(settings.processes)))


def digests(settings: Settings) -> dict[str, str]:
    """Return digests of --cfg and --weights, and of the source of training.

    The settings hold only names, and a resumed comparison must not mix two versions.
    """
    folders = [PROJECT / name for name in ("backend", "models", "utils")]
    source = [PROJECT / name for name in ("train.py", "val.py")]  # absent where it is installed
    source += [path for folder in folders for path in folder.rglob("*.py")]
    used = [path for path in source if path.exists() and "comparison" not in path.parts]
    found = {"code": _sha1(sorted(used))}
    for name, path in (("cfg", find_model(settings.cfg)), ("weights", Path(settings.weights))):
        if path.is_file():
            found[f"{name}_sha1"] = _sha1([path])
    return found


def _sha1(paths: Sequence[Path]) -> str:
    digest = hashlib.sha1(usedforsecurity=False)
    for path in paths:
        digest.update(read_bytes(path, MAX_BYTES))
    return digest.hexdigest()


def describe_run(turn: Turn, command: Sequence[str], outcome: Outcome, log: Path) -> Document:
    tail = log_tail(log)
    failure = failure_of(outcome, tail)
    return {
        "cell": turn.cell.name,
        "round": turn.round,
        "command": list(command),
        "failure": failure,
        "log_tail": tail if failure else [],
        "process_seconds": outcome.seconds,
        "processor_seconds": outcome.processor_seconds,
        "peak_host_mib": outcome.peak_host_mib,
        "peak_device_mib": outcome.peak_device_mib,
        "epochs": [],
        "work": None,
    }


def failure_of(outcome: Outcome, tail: Sequence[str]) -> str | None:
    """Return why a process failed, with the last error or line it printed; None on success."""
    if outcome.timed_out:  # its last output explains nothing
        return f"ended after {outcome.seconds:.0f} s, the limit of --timeout"
    if not outcome.exit_code:
        return None
    code = outcome.exit_code
    ended = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    lines = [line for line in tail if line.strip()]
    errors = [line for line in lines if SAYS_ERROR.match(line)]
    return ": ".join([ended, *(errors or lines)[-1:]])


def refusal_of(run: Document) -> str:
    """Return the message if train.py ended with a user error, else ""."""
    code, _, message = (run["failure"] or "").partition(": error: ")
    return message if code == f"exit code {EXIT_USER_ERROR}" else ""


def add_what_train_wrote(run: Document, folder: Path, settings: Settings) -> None:
    try:
        run["epochs"] = read_epochs(folder / "results.csv", settings.warm_up_epochs)
        written = read_json(folder / "work.json")
    except (OSError, ValueError) as error:
        run["failure"] = f"its files cannot be read: {error}"
        return
    for name in FROM_TRAIN:
        run[name] = written[name]
    run["variables"] = written.get("variables", {})
    run["work"] |= digests(settings)
    if run["device"] == "cpu":
        run["peak_device_mib"] = None


def read_epochs(path: Path, warm_up: int) -> list[Document]:
    _, rows = read_results(path)
    epochs = []
    for number, row in enumerate(rows):
        parts: dict[str, Document] = {"seconds": {}, "train": {}, "val": {}, "metrics": {}}
        for name, value in row.items():
            part, _, column = name.partition("/")
            if part in parts:  # JSON has neither NaN nor infinity
                parts[part][column] = value if math.isfinite(value) else None
        stages = parts.pop("seconds")
        seconds = stages.pop("epoch")
        counted = number >= warm_up
        epochs.append(
            {"epoch": number, "counted": counted, "seconds": seconds, "stages": stages, **parts}
        )
    return epochs


def log_tail(log: Path) -> list[str]:
    """Return the last lines of a run's output, as a terminal would show them."""
    with open_regular(log) as file:
        lines = file.read().decode(errors="replace").split("\n")
    # A progress bar overwrites itself: only its last state counts.
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines if line][-LOG_LINES:]


@dataclass(frozen=True)
class Outcome:
    exit_code: int  # negative for the number of the signal that ended it
    timed_out: bool  # stopped because it took too long
    seconds: float  # from its start to its end
    processor_seconds: float  # user and system time of all processes
    peak_host_mib: float  # peak of its largest process, sampled every POLL_SECONDS
    peak_device_mib: float | None  # rise of the used memory of all GPUs; None without nvidia-smi


def run_process(
    command: Sequence[str],
    log: Path,
    timeout: float,
    devices: str,
    watch: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run a command without a shell; none of its processes outlives this call, even on Ctrl-C.

    Args:
        log: file for its output.
        timeout: seconds after which it is stopped.
        devices: as for train.py, such as "0,1"; "cpu": do not run nvidia-smi.
        watch: called repeatedly while it runs, and once at the end.
    """
    samples = log.with_suffix(".device-memory")
    peak_kib, timed_out, taken = 0, False, sum(os.times()[2:4])  # of children that have ended
    with log.open("wb") as stream, device_samples(devices, samples), ending_children():
        start = time.monotonic()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**ALIKE, **os.environ},
            **child_options(ask_for_signal_when_parent_ends),
        )
        try:
            while process.poll() is None and not timed_out:
                # Not wait4, whose peak a process inherits from its parent.
                for child in (process.pid, *(one.pid for one in descendants(process.pid))):
                    peak_kib = max(peak_kib, peak_kib_of_process(child))
                watch()
                time.sleep(POLL_SECONDS)
                timed_out = time.monotonic() > start + timeout and process.poll() is None
        except BaseException:
            _end(process, signal.SIGINT)
            raise
        if timed_out:
            _end(process, signal.SIGTERM)
        seconds = time.monotonic() - start
    taken = sum(os.times()[2:4]) - taken
    watch()
    peak_device = rise(samples, 1 + devices.count(","))
    samples.unlink(missing_ok=True)
    return Outcome(process.returncode, timed_out, seconds, taken, peak_kib / 1024, peak_device)


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    signal_group(process, number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(SECONDS_TO_END)
    process.kill()  # no effect if it has ended
    process.wait()


@contextlib.contextmanager
def device_samples(devices: str, samples: Path, what: str = "memory.used") -> Iterator[None]:
    """Let nvidia-smi write used memory, MiB, or another query to a file, one line per GPU in turn.

    Measuring from outside treats all trainers alike, and includes their allocators' reserves.
    """
    program = shutil.which("nvidia-smi")
    if program is None or devices == "cpu":
        yield
        return
    # nvidia-smi ignores CUDA_VISIBLE_DEVICES.
    visible = dict(enumerate(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))))
    numbers = [device.removeprefix("cuda:") or "0" for device in devices.split(",")]
    physical = [visible.get(int(x), x) if x.isdecimal() else x for x in numbers]
    command = [program, f"--query-gpu={what}", "--format=csv,noheader,nounits",
        "-i", ",".join(physical), "-lms", str(DEVICE_POLL_MILLISECONDS)]  # fmt: skip
    with samples.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.DEVNULL)
    try:
        time.sleep(2 * DEVICE_POLL_MILLISECONDS / 1000)  # a line before the run begins
        yield
    finally:
        process.kill()
        process.wait()


def rise(samples: Path, gpus: int) -> float | None:
    """Sum over GPUs the largest line minus the first, MiB; None if nothing was measured."""
    lines = samples.read_text("utf-8", "replace").splitlines() if samples.exists() else []
    of_each = [[int(x) for x in lines[gpu::gpus] if x.isdecimal()] for gpu in range(gpus)]
    return float(sum(max(mib) - mib[0] for mib in of_each)) if all(of_each) else None
