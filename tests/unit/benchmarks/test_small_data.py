"""The table of two recipes: metrics of the best epochs, and seconds until a metric is reached."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import epoch, small_data
from duet.utils.errors import UserError

HEADING = "seconds/epoch,metrics/mAP_0.5,metrics/mAP_0.5:0.95"
RUNS = {  # per recipe and seed: rows of results.csv
    ("scratch-low", "0"): ["10,0.5,0.2", "10,0.86,0.4"],
    ("scratch-low", "1"): ["10,0.6,0.3", "10,0.7,0.5"],
    ("small", "0"): ["10,0.89,0.7", "12,0.91,0.6"],
    ("small", "1"): ["10,0.80,0.5", "14,0.87,0.5"],
}


def run(monkeypatch, *flags, code=0):
    asked = []

    def run_train(command, **_):
        value = {
            flag: command[command.index(flag) + 1] for flag in ("--hyp", "--seed", "--project")
        }
        asked.append((value["--hyp"], value["--seed"]))
        folder = Path(value["--project"]) / "run"
        folder.mkdir()
        (folder / "results.csv").write_text("\n".join([HEADING, *RUNS[asked[-1]]]))
        work = dict.fromkeys(epoch.WORK, 1)
        (folder / "work.json").write_text(json.dumps({"work": work}))
        return SimpleNamespace(returncode=code, stderr="error: no such file")

    monkeypatch.setattr(epoch.subprocess, "run", run_train)
    monkeypatch.setattr("sys.argv", ["small_data", "--weights", "w.pt", *flags])
    small_data.main()
    return asked


def test_recipes_run_in_turns_and_report_their_best_epochs(monkeypatch, capsys):
    asked = run(monkeypatch, "--seeds", "0", "1")
    recipes = ("scratch-low", "small")
    assert asked == [(recipe, seed) for seed in ("0", "1") for recipe in recipes]
    assert capsys.readouterr().out.splitlines()[2:4] == [
        "| shapes | scratch-low | 0.780 (0.700 to 0.860) | 0.450 (0.400 to 0.500) | 20 | "
        "inf, inf, inf |",
        "| shapes | small | 0.880 (0.870 to 0.890) | 0.600 (0.500 to 0.700) | 23 | 17, inf, inf |",
    ]


def test_a_failed_training_ends_the_comparison_with_its_message(monkeypatch):
    with pytest.raises(UserError, match="ended with 2: error: no such file"):
        run(monkeypatch, "--seeds", "0", code=2)
    with pytest.raises(UserError, match="--epochs: give one number per recipe"):
        run(monkeypatch, "--epochs", "30")
