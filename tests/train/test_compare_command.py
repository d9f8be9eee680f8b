"""compare.py as a user runs it, over stand-ins for train.py."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import compare
from duet.utils.comparison.load import LoadWatch
from duet.utils.files.run_folder import LOCK_FILE, RunLock
from duet.utils.report.results import STAGES
from tests.environments import wait_until
from tests.small import RESULT_COLUMNS

BODY = """
import csv, json, os, sys, time
behaviour = json.loads(open(__file__ + ".json").read())
flags = dict(zip(sys.argv[2::2], sys.argv[3::2]))
behaviour |= behaviour.get(flags["--batch"], {})
for flag, message in behaviour.get("refuses", {}).items():
    if flag in sys.argv:
        print("error: " + message)
        sys.exit(2)
time.sleep(behaviour.get("sleeps", 0))
folder = os.path.join(flags["--project"], flags["--name"])
os.makedirs(os.path.join(folder, "weights"), exist_ok=True)
columns = behaviour["columns"]
with open(os.path.join(folder, "results.csv"), "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(columns)
    for epoch in range(int(flags["--epochs"])):
        row = dict.fromkeys(columns, 0.5)
        row["seconds/epoch"] = behaviour["seconds"][epoch % len(behaviour["seconds"])]
        for stage in behaviour["stages"]:
            row["seconds/" + stage] = row["seconds/epoch"] / 10
        writer.writerow(row[name] for name in columns)
work = {"precision": "float32", "train_images": 100, "batches_sha1": flags["--batch"],
        "processes": int(flags.get("--nproc", 1)),
        "settings": {"backend": flags["--backend"], "seed": int(flags["--seed"])}}
work |= behaviour.get("work", {})
for name in ("bbox_iou_optim", "multi_tensor_optimizer"):
    work["settings"][name] = "--" + name in sys.argv
    if work["settings"][name]:
        print("--" + name + ": using the plain path")
means = {"compiled": "--compile" in sys.argv} | behaviour.get("means", {})
losses = behaviour.get("losses", [[0.1, 0.2, 0.3], [0.1, 0.1, 0.2]])
with open(os.path.join(folder, "work.json"), "w") as file:
    json.dump({"schema": 1, "framework": behaviour["framework"], "device": "cpu", "work": work,
               "means": means, "losses": losses}, file)
"""


def write_stub(folder: Path, name: str, seconds: list[float], **behaviour: Any) -> Path:
    """An executable that behaves as train.py under a backend would.

    Args:
        seconds: of the epochs, in turn.
        behaviour: "work" and "means" replace parts of work.json, "losses" those of the batches,
            "refuses" is a message by flag, "sleeps" seconds before anything; under a batch size as
            text, the same for runs of that size only.
    """
    path = folder / f"{name}-python"
    path.write_text(f"#!{sys.executable}\n{BODY}", encoding="utf-8")
    path.chmod(0o755)
    document = {
        "seconds": seconds,
        "framework": f"{name} 1.0, CPU",
        "columns": RESULT_COLUMNS,
        "stages": STAGES,
        **behaviour,
    }
    path.with_name(path.name + ".json").write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run compare.py with stubs in tmp_path; returns exit code, printed text and compare.json."""
    monkeypatch.setattr("signal.signal", lambda *arguments: None)
    monkeypatch.setattr(LoadWatch, "others", lambda watch: 0.0)  # whatever this machine does

    def run(*flags):
        arguments = [*map(str, flags)]
        if "--resume" not in arguments:
            arguments = [*common_flags(tmp_path), *arguments]
        monkeypatch.setattr("sys.argv", ["compare.py", *arguments])
        code = 0
        try:
            compare.run_command(compare.main)
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        path = tmp_path / "out" / "exp" / "compare.json"
        document = json.loads(path.read_text()) if path.exists() else None
        return code, printed.out + printed.err, document

    return run


def common_flags(folder):
    pythons = [f"--python={name}={folder / name}-python" for name in ("torch", "oneflow")]
    return [*pythons, "--batch=8", "--project", str(folder / "out")]


def stubs(folder, torch=None, oneflow=None):
    write_stub(folder, "torch", [9.0, 1.0, 1.1], **(torch or {}))
    write_stub(folder, "oneflow", [40.0, 4.0, 4.4], **(oneflow or {}))


def reports(folder):
    return [(folder / "out" / "exp" / f"compare.{kind}").read_text() for kind in ("md", "html")]


def test_equal_work_is_compared_pair_by_pair(run, tmp_path):
    stubs(tmp_path)
    code, printed, document = run("--variants", "plain,fused")
    assert code == 0, printed
    assert (document["schema"], document["status"]) == (2, "complete")
    cell = document["cells"][1]
    assert cell["name"] == "oneflow-plain-b8"
    assert cell["seconds_per_epoch"] == {"median": 4.2, "min": 4.0, "max": 4.4, "count": 4}
    # 100 images in an epoch of which a tenth is validation.
    assert cell["images_per_second"] == pytest.approx((100 / 3.6 + 100 / 3.96) / 2)
    assert cell["stages"]["other"] == pytest.approx(4.2 * 0.2)
    assert cell["peak_host_mib"] is not None and cell["peak_device_mib"] is None
    pair = document["pairs"][0]
    assert (pair["candidate"], pair["reference"]) == ("oneflow-plain-b8", "torch-plain-b8")
    assert pair["ratios"] == pytest.approx([4.0] * 4) and pair["verdict"] == "slower"
    fused = document["pairs"][2]
    assert fused["candidate"] == "torch-fused-b8" and fused["unequal"] == []
    assert fused["verdict"] == "no difference beyond noise"
    assert "4.00 times the time (4.00 to 4.00 in 4 pairs of epochs): slower" in printed
    assert "oneflow-plain-b8-round1: 4.20 s/epoch" in printed and "\033" not in printed
    assert "| oneflow | plain | 8 | 4.20 | 4.00 to 4.40 |" in reports(tmp_path)[0]
    assert not list((tmp_path / "out" / "exp").rglob("weights"))


@pytest.mark.parametrize("flags", [(), ("--nproc", 2)])
def test_unequal_work_is_refused_with_its_differences(run, tmp_path, flags):
    stubs(tmp_path, oneflow={"work": {"tf32": True, "processes": 3}})
    code, printed, document = run(*flags)
    assert code == 2 and document["settings"]["nproc"] == (flags[1] if flags else 1)
    assert "tf32: absent in torch-plain-b8 round 1, True in oneflow-plain-b8 round 1" in printed
    assert "processes: " in printed and "--allow-unequal" in printed
    assert document["status"] == "refused" and document["pairs"][0]["ratio"] is None
    assert len(document["cells"][0]["runs"]) == 1  # no further runs for nothing


def test_failed_cell_is_named_and_the_rest_runs(run, tmp_path):
    stubs(tmp_path, oneflow={"refuses": {"--bbox_iou_optim": "unrecognized arguments"}})
    code, printed, document = run("--variants", "plain,fused")
    assert code == 1
    assert "FAILED: oneflow-fused-b8: exit code 2: error: unrecognized arguments" in printed
    lengths = [len(cell["runs"]) for cell in document["cells"]]
    assert lengths == [2, 2, 2, 1]  # a failed cell is not tried again
    assert document["cells"][2]["seconds_per_epoch"]["count"] == 4


def test_flag_refused_by_train_ends_the_comparison(run, tmp_path):
    stubs(tmp_path, torch={"refuses": {"--data": "--data: there is no such dataset"}})
    code, printed, _ = run()
    assert code == 2 and printed.splitlines()[-1] == "error: --data: there is no such dataset"
    assert "oneflow" not in printed


def test_resumed_comparison_keeps_results_retries_failures(run, tmp_path):
    stubs(tmp_path, oneflow={"refuses": {"--backend": "out of memory"}})
    assert run()[0] == 1
    path = tmp_path / "out" / "exp" / "compare.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"created": "2030-01-02T03:04:05+00:00"}))
    stubs(tmp_path, torch={"refuses": {"--backend": "must not run again"}})
    code, printed, document = run("--resume", path.parent)
    assert code == 0, printed
    kept = [line.partition(":")[0] for line in printed.splitlines() if line.endswith("(kept)")]
    assert kept == ["torch-plain-b8-round1", "torch-plain-b8-round2"]
    assert document["pairs"][0]["ratio"]["count"] == 4
    assert document["created"] == "2030-01-02T03:04:05+00:00"


def test_comparison_locked_by_another_process_is_untouched(run, tmp_path):
    stubs(tmp_path)
    folder = tmp_path / "out" / "exp"
    assert run()[0] == 0
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with RunLock() as lock:
        lock.take(folder)
        before[folder / LOCK_FILE] = (folder / LOCK_FILE).stat().st_mtime_ns
        code, printed, _ = run("--resume", folder)
    assert code == 2 and f"error: {folder} is in use by process {os.getpid()} on" in printed
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize("changed", ["code", "weights_sha1", "compiled"])
def test_change_before_a_resume_is_unequal_work(run, tmp_path, changed):
    stubs(tmp_path)
    path = tmp_path / "file"
    path.write_text("nc: 1")
    flag = f"--{changed.removesuffix('_sha1')}"
    assert run(*([flag, path] if changed.endswith("_sha1") else []))[0] == 0
    runs = tmp_path / "out" / "exp" / "runs"
    record = json.loads((runs / "torch-plain-b8-round1.json").read_text())
    if changed == "code":  # as if another version of the source had made the first run
        record["work"]["code"] = "another"
        (runs / "torch-plain-b8-round1.json").write_text(json.dumps(record))
    path.write_text("nc: 2")
    (runs / "torch-plain-b8-round2.json").unlink()
    stubs(tmp_path, torch={"means": {"compiled": True}} if changed == "compiled" else None)
    code, printed, _ = run("--resume", runs.parent)
    assert code == 2 and f"  {changed}: " in printed


def test_interrupt_keeps_results_and_says_how_to_resume(tmp_path):
    stubs(tmp_path, oneflow={"sleeps": 100})
    command = [sys.executable, "compare.py", *common_flags(tmp_path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    record = tmp_path / "out" / "exp" / "compare.json"
    page = record.with_suffix(".html")  # with times once a run has ended
    wait_until(lambda: page.exists() and "Seconds per epoch" in page.read_text(), process)
    time.sleep(0.3)  # into the run that sleeps
    os.killpg(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    assert f"{sys.executable} compare.py --resume {tmp_path}/out/exp" in printed
    assert "Traceback" not in printed
    document = json.loads(record.read_text())
    assert document["status"] == "interrupted"
    assert document["cells"][0]["seconds_per_epoch"]["count"] == 2
