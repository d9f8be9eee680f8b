"""docs/examples/train-job.yaml and train.sbatch: flags, ranks, and how a job comes back."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from duet.utils.cli.train_config import parse_train_flags
from duet.utils.project import PROJECT
from tests.environments import wait_until

DOCUMENTS = {
    document["kind"]: document
    for document in yaml.safe_load_all(
        (PROJECT / "docs" / "examples" / "train-job.yaml").read_text(encoding="utf-8")
    )
}
JOB = DOCUMENTS["Job"]["spec"]
(CONTAINER,) = JOB["template"]["spec"]["containers"]


def test_train_py_accepts_the_job_flags():
    config = parse_train_flags(CONTAINER["args"])
    assert (config.resume, config.weights) == ("auto", "")
    assert (PROJECT / config.cfg).is_file()


def test_job_pods_share_a_master_address_and_world_size():
    environment = {item["name"]: item.get("value") for item in CONTAINER["env"]}
    name, service = DOCUMENTS["Job"]["metadata"]["name"], DOCUMENTS["Service"]["metadata"]["name"]
    assert environment["MASTER_ADDR"] == f"{name}-0.{service}"
    assert environment["WORLD_SIZE"] == str(JOB["completions"]) == str(JOB["parallelism"])


def test_suspended_pods_restart_and_mistakes_do_not():
    actions = {
        code: rule["action"]
        for rule in JOB["podFailurePolicy"]["rules"]
        for code in rule.get("onExitCodes", {}).get("values", [])
    }
    assert actions == {75: "Ignore", 2: "FailJob"}


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


def slurm_calls(folder: Path) -> list[str]:
    return (folder / "scontrol.log").read_text().splitlines()[1:]  # the first finds the master


def arguments_of(folder: Path, machine: int) -> list[str]:
    return (folder / f"arguments{machine}").read_text().splitlines()


def test_each_machine_launches_with_its_rank_and_one_master(cluster):
    (cluster / "code").write_text("0")
    output, _ = (job := submit(cluster)).communicate(timeout=SECONDS)
    assert job.returncode == 0, output
    one, two = (arguments_of(cluster, machine) for machine in range(2))
    assert one[:4] == ["-m", "torch.distributed.run", "--node_rank", "0"]
    assert two[:4] == ["-m", "torch.distributed.run", "--node_rank", "1"]
    assert one[4:] == two[4:]
    assert one[one.index("--master_addr") + 1] == "first"
    assert slurm_calls(cluster) == []


def test_early_signal_suspends_all_ranks_and_requeues_job(cluster):
    job = submit(cluster)
    for machine in range(2):
        wait_until((cluster / f"arguments{machine}").exists)
    job.send_signal(signal.SIGUSR1)
    output, _ = job.communicate(timeout=SECONDS)
    assert job.returncode == 75, output
    assert "suspended" in output
    assert slurm_calls(cluster) == ["requeue 7"]


@pytest.mark.parametrize("code", [0, 1, 2])
def test_only_a_suspended_job_is_requeued(cluster, code):
    (cluster / "runs").mkdir()
    (cluster / "runs" / "suspend-7").touch()  # of an earlier start of the job
    (cluster / "runs" / "status-7").write_text("75")
    (cluster / "code").write_text(str(code))
    (job := submit(cluster)).communicate(timeout=SECONDS)
    assert job.returncode == min(code, 1)  # launchers turn every other code into 1
    assert not (cluster / "runs" / "suspend-7").exists() and slurm_calls(cluster) == []
