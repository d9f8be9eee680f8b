"""benchmarks.beside: a stranger's trainer is timed beside ours, on equal work alone."""

import json
import os
import statistics
import sys

import pytest

from benchmarks import beside
from duet.utils.comparison.load import LoadWatch
from duet.utils.project import PROJECT
from tests.small import write_small_dataset, write_small_model

# As trainers with YOLOv5's command line: flags as opt.yaml, a row an epoch, bars as tqdm's.
STAND_IN = """
import argparse, json, pathlib, sys, time
parser = argparse.ArgumentParser()
for name in ("backend", "data", "cfg", "weights", "workers", "device", "project", "name"):
    parser.add_argument("--" + name)
for name in ("img", "batch-size", "epochs"):
    parser.add_argument("--" + name, type=int)
parser.add_argument("--cache")
parser.add_argument("--exist-ok", action="store_true")
parser.add_argument("--noplots", action="store_true")
parser.add_argument("--seconds", type=float, default=0.15)
parser.add_argument("--work", type=float, default=0)
parser.add_argument("--batches", type=int, default=23)
parser.add_argument("--parameters", default="1,770,682")
parser.add_argument("--ignores", nargs="*", default=[])
flags, _ = parser.parse_known_args()
folder = pathlib.Path(flags.project, flags.name)
(folder / "weights").mkdir(parents=True)
options = {"imgsz": flags.img, "batch_size": flags.batch_size, "cache": flags.cache}
(folder / "opt.yaml").write_text("".join(
    f"{name}: {json.dumps(value)}\\n" for name, value in options.items()
    if name not in flags.ignores))
(folder / "weights" / "best.pt").write_bytes(b"cos\\nsystem\\n(S'exit 1'\\ntR.")
print(f"summary: 214 layers, {flags.parameters} parameters", flush=True)
def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
work(flags.work)
with open(folder / "results.csv", "w", buffering=1) as file:
    print("               epoch,      train/box_loss", file=file)
    for epoch in range(flags.epochs - ("epochs" in flags.ignores)):
        time.sleep(flags.seconds)
        work(flags.work / 4)
        total = flags.batches
        print(f"100%|#####| {total}/{total} [00:01<00:00, 9.0it/s]", flush=True)
        print(f"{epoch}, 0.5", file=file)
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run it with stand-ins on both sides; returns exit code, printed text and the JSON."""
    monkeypatch.setattr(LoadWatch, "others", lambda watch: 0.0)  # whatever this machine does
    script = tmp_path / "stranger.py"
    script.write_text(STAND_IN)
    ours = tmp_path / "python"  # is given train.py, and leaves it alone
    ours.write_text(f'#!/bin/sh\nshift\nexec "{sys.executable}" "{script}" "$@"\n')
    ours.chmod(0o755)
    monkeypatch.setattr(beside, "find_pythons", lambda names: dict.fromkeys(names, str(ours)))

    def run(*flags, other="", extra=()):
        path = tmp_path / "beside.json"
        line = ["beside", "--other", f"{sys.executable} '{script}' {other}", "--data", "none.yaml"]
        line += ["--epochs", "3", "--cache", "ram", "--json", str(path), *map(str, flags)]
        monkeypatch.setattr("sys.argv", [*line, "--", *extra] if extra else line)
        code = 0
        try:
            beside.run_command(beside.main)
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        document = json.loads(path.read_text()) if path.exists() else None
        return code, printed.out + printed.err, document

    return run


def test_trainers_alternate_and_share_one_clock(run):
    code, printed, document = run("--ours", "--seconds 0.4 --work 0.2", other="--work 0.2")
    assert code == 0, printed
    order = [line.split("-")[0] for line in printed.splitlines() if "-beside-b16-round" in line]
    assert order == ["torch", "other", "other", "torch"]
    for runs in document["runs"].values():
        assert [len(one["epochs"]) for one in runs] == [2, 2]  # the first of three warms up
        assert all(one["processor_seconds"] >= 0.2 for one in runs)
        assert all(set(one["load"]) == {"others"} for one in runs)
    ours, other = (
        [epoch["seconds"] for one in runs for epoch in one["epochs"]]
        for runs in document["runs"].values()
    )
    assert min(ours) > 0.3  # it sleeps 0.4 s in each, and is looked at every 0.05 s
    ratio = next(line for line in printed.splitlines() if line.startswith("epochs"))
    found = statistics.median(left / right for left, right in zip(ours, other, strict=True))
    assert float(ratio.split()[1]) == pytest.approx(found, abs=0.01) and "in 4 pairs" in ratio
    for line, times in (("processor, epochs", "in 4 pairs"), ("processor, runs", "in 2 pairs")):
        assert any(text.startswith(line) and times in text for text in printed.splitlines())
    assert "equal work: epochs, image size, batch size, cache, parameters" in printed
    assert "so not compared: batches per epoch, precision, training images" in printed
    assert "UNDER LOAD" not in printed


@pytest.mark.parametrize(
    ("other", "line"),
    [
        ("--parameters 99", "parameters: 1770682 in ours, 99 in the other"),
        (
            "--parameters '1,770,682 parameters, not caching images, 0'",
            "cache: ram in ours, ram, of the images none in the other",
        ),
    ],
)
def test_unequal_work_is_refused_or_marked_when_allowed(run, other, line):
    code, printed, document = run("--rounds", 1, other=other)
    assert code == 2 and document is None and line in printed and "divided" not in printed
    code, printed, document = run("--rounds", 1, "--allow-unequal", other=other)
    assert code == 0 and f"UNEQUAL WORK: {line}" in printed
    assert document["work"]["unequal"] == [line]


def test_failed_trainer_is_reported_with_its_message(run, tmp_path):
    (tmp_path / "broken.py").write_text("raise SystemExit('no such --img')")
    code, printed, _ = run("--other", f"{sys.executable} {tmp_path / 'broken.py'}")
    assert code == 1 and "exit code 1: no such --img" in printed


def test_duet_beside_itself_does_equal_work(monkeypatch, tmp_path):
    """The real one, on the backend of this suite."""
    data, model = write_small_dataset(tmp_path), write_small_model(tmp_path)
    name, path = os.environ.get("YOLO_BACKEND", "torch"), tmp_path / "beside.json"
    other = f"{sys.executable} train.py --backend {name}"
    monkeypatch.setattr(beside, "find_pythons", lambda names: {name: sys.executable})
    line = ["beside", "--other", other, "--backend", name, "--data", data, "--cfg", model]
    line += ["--img", 64, "--batch", 4, "--epochs", 2, "--rounds", 1, "--json", path]
    monkeypatch.setattr("sys.argv", [*map(str, line), "--", "--noplots"])
    monkeypatch.chdir(PROJECT)
    beside.main()
    document = json.loads(path.read_text())
    assert document["work"]["unequal"] == document["work"]["not_reported"] == []
    assert len(document["work"]["equal"]) == 10
    (ours,), (twin,) = document["runs"].values()
    assert ours["work"]["batches per epoch"] == 3
    assert len(ours["epochs"]) == len(twin["epochs"]) == 1


def test_trainer_without_results_is_timed_by_its_process(run, tmp_path):
    (tmp_path / "silent.py").write_text("print('trained')")
    code, printed, document = run(
        "--rounds", 1, "--other", f"{sys.executable} {tmp_path / 'silent.py'}"
    )
    assert code == 0 and document["runs"]["other"][0]["epochs"] == []
    lines = {line[:14].strip(): line for line in printed.splitlines()}
    assert "wrote no rows" in lines["epochs"] and "in 1 pair: too few" in lines["whole runs"]
