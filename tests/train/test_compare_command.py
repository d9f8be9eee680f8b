"""compare.py as a user runs it, over stand-ins for train.py; one test trains on both backends."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import compare
from tests.stub_trainer import write_stub
from utils.comparison.load import LoadWatch
from utils.comparison.terminal import Terminal
from utils.state.lock import LOCK_FILE, RunLock


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run compare.py with stubs in tmp_path; returns exit code, printed text and compare.json."""
    monkeypatch.setattr("signal.signal", lambda *arguments: None)
    monkeypatch.setattr(LoadWatch, "others", lambda watch: 0.0)  # whatever this machine does

    def run(*flags, name="exp"):
        arguments = [*map(str, flags)]
        if "--resume" not in arguments:
            arguments = [*common_flags(tmp_path), "--name", name, *arguments]
        monkeypatch.setattr("sys.argv", ["compare.py", *arguments])
        code = 0
        try:
            compare.run_command(compare.main)
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        path = tmp_path / "out" / name / "compare.json"
        document = json.loads(path.read_text()) if path.exists() else None
        return code, printed.out + printed.err, document

    return run


def common_flags(folder):
    pythons = [f"--python={name}={folder / name}-python" for name in ("torch", "oneflow")]
    return [*pythons, "--batch=8", "--project", str(folder / "out")]


def stubs(folder, torch=None, oneflow=None):
    write_stub(folder, "torch", [9.0, 1.0, 1.1], **(torch or {}))
    write_stub(folder, "oneflow", [40.0, 4.0, 4.4], **(oneflow or {}))


def test_equal_work_is_compared_pair_by_pair(run, tmp_path):
    stubs(tmp_path)
    code, printed, document = run("--variants", "plain,fused")
    assert code == 0, printed
    assert (document["schema"], document["status"]) == (1, "complete")
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
    assert "\033" not in printed  # not a terminal
    assert document["cells"][2]["notes"] == [
        "--bbox_iou_optim: the plain path is used",
        "--multi_tensor_optimizer: the plain path is used",
    ]
    row = ["oneflow", "plain", "8", "4.20", "4.00 to 4.40"]
    for text in (printed, (tmp_path / "out" / "exp" / "compare.md").read_text()):
        rows = [[word.strip() for word in line.split("|")[1:6]] for line in text.splitlines()]
        assert rows.count(row) == 1
    assert not list((tmp_path / "out" / "exp").rglob("weights"))


def test_unequal_work_is_refused_with_the_list_of_differences(run, tmp_path):
    stubs(tmp_path, oneflow={"work": {"tf32": True, "batches_sha1": "other"}})
    code, printed, document = run()
    assert code == 2
    assert "tf32: absent in torch-plain-b8 round 1, True in oneflow-plain-b8 round 1" in printed
    assert "batches_sha1: 8 in" in printed and "--allow-unequal" in printed
    assert document["status"] == "refused" and document["pairs"][0]["ratio"] is None
    assert len(document["cells"][0]["runs"]) == 1  # no further runs for nothing


def test_several_processes_are_in_every_command_and_report(run, tmp_path):
    stubs(tmp_path)
    code, printed, document = run("--nproc", 2, "--variants", "plain,fused", "--device", "cpu")
    assert code == 0, printed
    assert document["settings"]["nproc"] == 2
    assert [cell["processes"] for cell in document["cells"]] == [2] * 4
    for cell in document["cells"]:
        assert all("--device cpu --nproc 2" in " ".join(run["command"]) for run in cell["runs"])
    # Those of all processes together, as in one.
    assert document["cells"][0]["images_per_second"] == pytest.approx((100 / 0.9 + 100 / 0.99) / 2)
    folder = tmp_path / "out" / "exp"
    for text in (printed, *((folder / f"compare.{kind}").read_text() for kind in ("md", "html"))):
        assert "of warm-up, in turns, 2 processes per run" in text
    for text in ((folder / f"compare.{kind}").read_text() for kind in ("md", "html")):
        assert text.count("--nproc 2") == 4


def test_different_numbers_of_processes_are_unequal_work(run, tmp_path):
    stubs(tmp_path, oneflow={"work": {"processes": 1}})
    code, printed, document = run("--nproc", 2)
    assert code == 2
    assert "processes: 2 in torch-plain-b8 round 1, 1 in oneflow-plain-b8 round 1" in printed
    assert document["cells"][0]["processes"] == 2


def test_a_batch_that_the_processes_cannot_share_stops_all_before_a_run(run, tmp_path):
    stubs(tmp_path)
    code, printed, document = run("--nproc", 3)
    assert (code, document) == (2, None)
    assert "error: --batch 8: the images of all 3 processes together" in printed
    assert not (tmp_path / "out").exists()


def test_unequal_work_is_marked_in_every_report_where_it_is_allowed(run, tmp_path):
    stubs(tmp_path, oneflow={"work": {"tf32": True}})
    code, printed, document = run("--allow-unequal")
    assert code == 0
    assert document["pairs"][0]["ratio"]["median"] == pytest.approx(4.0)
    assert "slower; UNEQUAL WORK" in printed
    row = next(line for line in printed.splitlines() if line.startswith("| oneflow | plain"))
    assert row.endswith("unequal work |")
    for name in ("compare.md", "compare.html"):
        text = (tmp_path / "out" / "exp" / name).read_text()
        assert "UNEQUAL WORK: oneflow-plain-b8 against torch-plain-b8: tf32" in text


def test_means_that_differ_between_cells_are_told_and_not_refused(run, tmp_path):
    stubs(tmp_path, oneflow={"means": {"compiled": False}})
    code, printed, document = run("--variants", "plain,compile")
    assert code == 0, printed
    pairs = {f"{pair['candidate']}/{pair['reference']}": pair for pair in document["pairs"]}
    across = pairs["oneflow-compile-b8/torch-compile-b8"]
    assert (across["unequal"], across["verdict"]) == ([], "slower")
    line = "compiled: True in torch-compile-b8 round 1, False in oneflow-compile-b8 round 1"
    assert across["means"] == [line]
    assert len(pairs["torch-compile-b8/torch-plain-b8"]["means"]) == 1
    assert pairs["oneflow-compile-b8/oneflow-plain-b8"]["means"] == []
    folder = tmp_path / "out" / "exp"
    for text in (printed, *((folder / f"compare.{kind}").read_text() for kind in ("md", "html"))):
        assert text.count(f"by other means: {line}") == 1


def test_means_that_differ_between_the_rounds_of_a_cell_are_refused(run, tmp_path):
    stubs(tmp_path)
    run()
    (tmp_path / "out" / "exp" / "runs" / "torch-plain-b8-round2.json").unlink()
    stubs(tmp_path, torch={"means": {"compiled": True}})
    code, printed, _ = run("--resume", tmp_path / "out" / "exp")
    assert code == 2
    assert "compiled: False in torch-plain-b8 round 1, True in torch-plain-b8 round 2" in printed


def test_losses_that_diverge_are_told_first(run, tmp_path):
    stubs(tmp_path, oneflow={"losses": [[0.1, 0.2, 0.3], [0.1, 0.1, 0.3]]})
    _, printed, document = run()
    assert document["pairs"][0]["losses"]["diverged"]
    start = printed.index("LOSSES DIVERGE: oneflow-plain-b8 is 25.0% away from torch-plain-b8")
    assert start < printed.index("Seconds per epoch")
    markdown = (tmp_path / "out" / "exp" / "compare.md").read_text()
    doubt, _, warning = markdown.splitlines()[2:5]
    assert doubt == "This is no result for 1 of 1 comparison: the work or the losses differ."
    assert warning.startswith("> **LOSSES DIVERGE")


def test_losses_that_are_not_finite_are_told_first_and_left_out_of_the_curves(run, tmp_path):
    stubs(tmp_path, oneflow={"losses": [[0.1, 0.2, 0.3], [0.1, None, 0.2], [0.1, 0.1, 0.1]]})
    _, printed, document = run()
    assert document["pairs"][0]["losses"]["worst"] is None
    assert document["pairs"][0]["losses"]["diverged"]
    told = (
        "LOSSES DIVERGE: oneflow-plain-b8 against torch-plain-b8: a loss of batch 2 is not finite"
    )
    assert printed.index(told) < printed.index("Seconds per epoch")
    folder = tmp_path / "out" / "exp"
    json.loads((folder / "compare.json").read_text(), parse_constant=pytest.fail)
    page = (folder / "compare.html").read_text()
    points = [line.partition('"')[0] for line in page.split(' points="')[1:]]
    assert [len(line.split()) for line in points] == [2, 2] and "nan" not in "".join(points)


def test_cells_without_a_finite_loss_have_no_curve(run, tmp_path):
    losses = {"losses": [[0.1, None, 0.3]]}
    stubs(tmp_path, torch=losses, oneflow=losses)
    code, printed, _ = run()
    assert code == 0, printed
    assert "LOSSES DIVERGE" in printed
    assert "<polyline" not in (tmp_path / "out" / "exp" / "compare.html").read_text()


def test_a_cell_that_fails_is_told_and_the_rest_runs(run, tmp_path):
    refuses = {"--bbox_iou_optim": "unrecognized arguments: --bbox_iou_optim"}
    stubs(tmp_path, oneflow={"refuses": refuses})
    code, printed, document = run("--variants", "plain,fused")
    assert code == 1
    assert "error: unrecognized arguments: --bbox_iou_optim" in printed
    lengths = [len(cell["runs"]) for cell in document["cells"]]
    assert lengths == [2, 2, 2, 1]  # a failed cell is not tried again
    (failure,) = document["cells"][3]["failures"]
    assert failure == "exit code 2: error: unrecognized arguments: --bbox_iou_optim"
    assert document["cells"][2]["seconds_per_epoch"]["count"] == 4


def test_a_run_that_takes_too_long_fails(run, tmp_path):
    stubs(tmp_path, oneflow={"sleeps": 60})
    code, printed, document = run("--timeout", 0.01, "--rounds", 1)
    assert code == 1
    assert "the limit of --timeout" in document["cells"][1]["failures"][0]


def test_a_resumed_comparison_keeps_what_is_done_and_tries_failures_again(run, tmp_path):
    stubs(tmp_path, oneflow={"refuses": {"--backend": "out of memory"}})
    assert run()[0] == 1
    stubs(tmp_path, torch={"refuses": {"--backend": "must not run again"}})
    code, printed, document = run("--resume", tmp_path / "out" / "exp")
    assert code == 0, printed
    kept = [line.split()[0] for line in printed.splitlines() if line.endswith("(kept)")]
    assert kept == ["torch-plain-b8-round1", "torch-plain-b8-round2"]
    assert document["pairs"][0]["ratio"]["count"] == 4


def test_a_comparison_that_another_process_writes_is_refused_and_untouched(run, tmp_path):
    stubs(tmp_path)
    folder = tmp_path / "out" / "exp"
    assert run()[0] == 0
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with RunLock() as lock:
        lock.take(folder)
        before[folder / LOCK_FILE] = (folder / LOCK_FILE).stat().st_mtime_ns
        code, printed, _ = run("--resume", folder)
    assert code == 2 and f"error: {folder} is being written by process {os.getpid()} on" in printed
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_run_of_a_killed_comparison_that_has_not_ended_is_not_removed(run, tmp_path):
    stubs(tmp_path, oneflow={"refuses": {"--backend": "out of memory"}})
    assert run()[0] == 1
    left = tmp_path / "out" / "exp" / "runs" / "oneflow-plain-b8-round1"
    (left / "kept").touch()
    with RunLock() as lock:
        lock.take(left)
        code, printed, _ = run("--resume", left.parents[1])
    assert code == 2 and f"error: {left} is being written by process" in printed
    assert (left / "kept").exists()


def test_a_resumed_comparison_keeps_the_time_of_its_start(run, tmp_path):
    stubs(tmp_path)
    run("--rounds", 1)
    path = tmp_path / "out" / "exp" / "compare.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"created": "2030-01-02T03:04:05+00:00"}))
    _, _, resumed = run("--resume", tmp_path / "out" / "exp")
    assert resumed["created"] == "2030-01-02T03:04:05+00:00"


def test_a_comparison_is_not_resumed_on_another_machine(run, tmp_path):
    stubs(tmp_path)
    run("--rounds", 1)
    path = tmp_path / "out" / "exp" / "compare.json"
    document = json.loads(path.read_text())
    document["machine"]["processor"] = "Z80"
    path.write_text(json.dumps(document))
    code, printed, _ = run("--resume", tmp_path / "out" / "exp")
    assert code == 2 and "processor was Z80" in printed


def test_code_that_changed_in_between_is_unequal_work(run, tmp_path, monkeypatch):
    stubs(tmp_path)
    run("--rounds", 1)
    (tmp_path / "out" / "exp" / "runs" / "oneflow-plain-b8-round1.json").unlink()
    monkeypatch.setattr("utils.comparison.execution.code_digest", lambda: "changed")
    code, printed, _ = run("--resume", tmp_path / "out" / "exp")
    assert code == 2 and "code: " in printed and "changed in oneflow-plain-b8" in printed


@pytest.mark.parametrize("flag", ["--cfg", "--weights"])
def test_a_model_or_weights_that_changed_in_between_are_unequal_work(run, tmp_path, flag):
    stubs(tmp_path)
    path = tmp_path / "file"
    path.write_text("nc: 1")
    assert run("--rounds", 1, flag, path)[0] == 0
    (tmp_path / "out" / "exp" / "runs" / "oneflow-plain-b8-round1.json").unlink()
    path.write_text("nc: 2")
    code, printed, _ = run("--resume", tmp_path / "out" / "exp")
    assert code == 2 and f"  {flag.removeprefix('--')}_sha1: " in printed


@pytest.mark.parametrize("later", ["torch-plain-b8-round2", "torch-fused-b8-round1"])
def test_another_version_of_a_framework_in_between_is_unequal_work(run, tmp_path, later):
    stubs(tmp_path)
    assert run("--variants", "plain,fused")[0] == 0
    (tmp_path / "out" / "exp" / "runs" / f"{later}.json").unlink()
    stubs(tmp_path, torch={"framework": "torch 2.0, CPU"})
    code, printed, _ = run("--resume", tmp_path / "out" / "exp")
    assert code == 2
    cell, _, number = later.rpartition("-round")
    assert (
        f"  framework: torch 1.0, CPU in torch-plain-b8 round 1, torch 2.0, CPU in {cell} round "
        f"{number}" in printed
    )


def test_another_trainer_is_timed_beside_and_marked(run, tmp_path):
    stubs(tmp_path)
    script = tmp_path / "tool.py"
    script.write_text(
        "import sys, time\n"
        "with open(sys.argv[2], 'w', buffering=1) as file:\n"
        "    print('epoch', file=file)\n"
        "    for epoch in range(int(sys.argv[1])):\n"
        "        time.sleep(0.2)\n"
        "        print(epoch, file=file)\n"
    )
    tool = f"{sys.executable} {script} {{epochs}} {{folder}}/r.csv"
    code, printed, document = run(
        "--external", f"my.tool={tool}", "--external-results", "my.tool={folder}/r.csv",
        "--external", f"whole={sys.executable} -c pass",
    )  # fmt: skip
    assert code == 0, printed
    mine, whole = document["pairs"][1:]
    assert (mine["measure"], whole["measure"]) == ("epoch", "process")
    assert not mine["checked"] and not whole["checked"]
    seconds = document["cells"][2]["seconds_per_epoch"]
    assert 1 <= seconds["count"] <= 4 and 0 < seconds["median"] < 60
    assert printed.count("not checked for equal work") == 4  # two rows, two pairs
    logs = {path.name for path in (tmp_path / "out" / "exp" / "runs").glob("*.log")}
    assert len(logs) == 8 and "my.tool-external-b8-round2.log" in logs


def test_an_interrupt_keeps_what_was_measured_and_says_how_to_go_on(tmp_path):
    stubs(tmp_path, oneflow={"sleeps": 100})
    command = [sys.executable, "compare.py", *common_flags(tmp_path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    record = tmp_path / "out" / "exp" / "compare.json"
    deadline = time.monotonic() + 60
    while not record.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.3)  # into the run that sleeps
    os.killpg(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    assert (
        f"{sys.executable} compare.py --resume {tmp_path}/out/exp" in printed
        and "Traceback" not in printed
    )
    document = json.loads(record.read_text())
    assert document["status"] == "interrupted"
    assert document["cells"][0]["seconds_per_epoch"]["count"] == 2


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [Screen(), io.StringIO()])
def test_colours_and_progress_are_for_a_terminal_only(run, tmp_path, monkeypatch, stream):
    monkeypatch.delenv("NO_COLOR", raising=False)
    stubs(tmp_path, oneflow={"refuses": {"--backend": "out of memory"}})
    monkeypatch.setattr("compare.Terminal", lambda _: Terminal(stream))
    run("--rounds", 1)
    printed = stream.getvalue()
    assert ("\033[31mFAILED: oneflow-plain-b8: exit code 2: error: out of memory" in printed) is (
        stream.isatty()
    )
    assert ("torch-plain-b8-round1 (1 of 2)" in printed) is stream.isatty()
    assert ("\033" in printed) is stream.isatty()
