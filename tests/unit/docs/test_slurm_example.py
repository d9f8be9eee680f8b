"""docs/examples/train.sbatch, with stand-ins for Slurm's programs and for Python."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from duet.utils.project import PROJECT

SCRIPT = PROJECT / "docs" / "examples" / "train.sbatch"
SECONDS = 30
# Stand in for Slurm's programs and Python: two tasks at once; what is asked of Slurm is written.
PROGRAMS = {
    "scontrol": """
echo "$*" >> scontrol.log
[ "$1" = show ] && printf 'first\\nsecond\\n'
""",
    "srun": """
shift  # --kill-on-bad-exit=0
SLURM_NODEID=0 "$@" & zero=$!
SLURM_NODEID=1 "$@" & one=$!
wait $zero; status=$?
wait $one && exit $status
""",
    ".venv/torch/bin/python": """
printf '%s\\n' "$@" > "arguments$SLURM_NODEID"
while [ ! -e code ] && [ ! -e runs/suspend-7 ]; do sleep 0.05; done
code=$(cat code 2> /dev/null || echo 75)
[ "$SLURM_NODEID" = 1 ] || echo "$code" > "$DUET_STATUS_FILE"
exit $((code == 75 ? 0 : code > 0))
""",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A folder to submit from."""
    for name, text in PROGRAMS.items():
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/usr/bin/env bash{text}")
        program.chmod(0o755)
    return tmp_path


def submit(folder: Path, **environ: str) -> subprocess.Popen[str]:
    """What Slurm does with the script once it has two machines."""
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    path = f"{folder}:{os.environ['PATH']}"
    command, pipe = ["bash", str(SCRIPT)], subprocess.PIPE
    variables = {**os.environ, **slurm, "PATH": path, **environ}
    return subprocess.Popen(
        command, cwd=folder, env=variables, stdout=pipe, stderr=subprocess.STDOUT, text=True
    )


def asked_of_slurm(folder: Path) -> list[str]:
    return (folder / "scontrol.log").read_text().splitlines()[1:]  # the first finds the master


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.05)


def arguments_of(folder: Path, machine: int) -> list[str]:
    return (folder / f"arguments{machine}").read_text().splitlines()


def test_each_machine_gets_a_launcher_with_its_own_number_and_the_same_master(cluster):
    (cluster / "code").write_text("0")
    output, _ = (job := submit(cluster)).communicate(timeout=SECONDS)
    assert job.returncode == 0, output
    one, two = (arguments_of(cluster, machine) for machine in range(2))
    assert one[:4] == ["-m", "torch.distributed.run", "--node_rank", "0"]
    assert two[:4] == ["-m", "torch.distributed.run", "--node_rank", "1"]
    assert one[4:] == two[4:]
    assert one[one.index("--master_addr") + 1] == "first"
    assert asked_of_slurm(cluster) == []


def test_a_signal_before_the_end_suspends_all_ranks_and_puts_the_job_back_into_the_queue(cluster):
    job = submit(cluster)
    for machine in range(2):
        wait_for(cluster / f"arguments{machine}")
    job.send_signal(signal.SIGUSR1)
    output, _ = job.communicate(timeout=SECONDS)
    assert job.returncode == 75, output
    assert "suspended" in output
    assert asked_of_slurm(cluster) == ["requeue 7"]


def test_a_job_that_comes_back_finds_nothing_of_before(cluster):
    (cluster / "runs").mkdir()
    (cluster / "runs" / "suspend-7").touch()
    (cluster / "runs" / "status-7").write_text("75")
    (cluster / "code").write_text("0")
    (job := submit(cluster)).communicate(timeout=SECONDS)
    assert job.returncode == 0
    assert not (cluster / "runs" / "suspend-7").exists()
    assert asked_of_slurm(cluster) == []


@pytest.mark.parametrize("code", [1, 2])
def test_a_failure_is_not_put_back_into_the_queue(cluster, code):
    (cluster / "code").write_text(str(code))
    (job := submit(cluster)).communicate(timeout=SECONDS)
    assert job.returncode == 1  # as the launchers have it
    assert asked_of_slurm(cluster) == []
