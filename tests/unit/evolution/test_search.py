"""A search: its trials side by side, failures and stops, and the study that draws their values."""

import contextlib
import csv
import dataclasses
import json
import pickle
import re
from pathlib import Path
from unittest import mock

import pytest

from duet.backend.processes import Process
from duet.utils.cli.flags import flags_of
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.train_config import TrainConfig, parse_train_flags, read_train_flags
from duet.utils.errors import UserError
from duet.utils.evolution import search
from duet.utils.evolution.search import evolve
from duet.utils.evolution.study import RANGES, Range, SearchStudy, searched_ranges
from duet.utils.optional import install_command
from duet.utils.processes.suspend import StopRequests, Suspended
from duet.utils.tasks import CLASSIFICATION, CLASSIFIER_HYPERPARAMETERS, TASKS

HYP = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
FIGURES = ["metrics/precision", "metrics/recall", "metrics/mAP_0.5", "metrics/mAP_0.5:0.95"]
# What a trial has of its own, or not at all; all other settings are the search's.
OWN = {
    "evolve", "storage", "override", "project", "name", "exist_ok", "resume", "suspend_file",
    "nproc", "device", "no_plots", "keep", "backend",
}  # fmt: skip
COMMON = {field.name: field.default for field in dataclasses.fields(TrainConfig)}


class FakeProcess:
    """A training that writes an epoch each time that it is looked at.

    The higher lr0 is, the better. commands: of all; failing: exit codes of trials that fail.
    """

    commands: list = []
    failing: dict = {}
    at_once = most = 0

    def __init__(self, command, **options):
        self.flags, self.returncode = parse_train_flags(command[3:]), None
        self.trial = int(self.flags.name.removeprefix("trial-"))
        FakeProcess.at_once += 1
        FakeProcess.most = max(FakeProcess.most, FakeProcess.at_once)
        FakeProcess.commands.append(command)
        folder = self.flags.project / self.flags.name
        (folder / "weights").mkdir(exist_ok=True, parents=True)
        for name in ("best", "last", "state-00000001"):
            (folder / "weights" / f"{name}.safetensors").write_bytes(b"x")
        self.results = folder / "results.csv"
        if not self.results.exists():
            self.results.write_text(",".join(["epoch", *FIGURES, "val/box_loss"]) + "\n")

    def wait(self, seconds):
        return self.returncode

    def end(self, code):
        self.returncode = code
        FakeProcess.at_once -= 1

    def poll(self):
        if self.returncode is not None:
            return self.returncode
        lines = self.results.read_text().splitlines()
        if self.trial in self.failing:
            self.end(self.failing[self.trial])
        elif len(lines) - 1 == self.flags.epochs:
            self.end(0)
        else:
            value = read_hyperparameters(self.flags.hyp, self.flags.override).lr0
            with self.results.open("a") as file:
                file.write(f"{len(lines) - 1},0.5,0.5,{value},{value},0.1\n")
        return self.returncode

    def send_signal(self, number):
        if self.returncode is None:
            self.end(75)


def started():
    """The trials in the order in which their processes were started."""
    return [int(parse_train_flags(command[3:]).name[-4:]) for command in FakeProcess.commands]


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    """Trainings are played, and no process is looked for or ended."""
    monkeypatch.setattr(search.subprocess, "Popen", FakeProcess)
    monkeypatch.setattr(search, "POLL_SECONDS", 0)
    # Drawing takes longer than all else; tests/unit/report/plots/test_results.py has it.
    monkeypatch.setattr(search, "plot_evolution", lambda values, fitness, path: path.touch())
    monkeypatch.setattr(search, "ending_children", contextlib.nullcontext)
    FakeProcess.commands, FakeProcess.failing = [], {}
    FakeProcess.at_once = FakeProcess.most = 0


class StopAt(StopRequests):
    """Asks for a stop when the search has checked for one this many times."""

    def __init__(self, count):
        super().__init__()
        self.left = count

    def cause(self):
        self.left -= 1
        return None if self.left else "the test asks"


def run(place, *flags, stop=None):
    words = ["--project", str(place), "--epochs", "3", "--device", "cpu", *flags]
    with mock.patch("sys.argv", ["train.py", "--evolve", "6", *words]):
        evolve(TASKS["detect"], parse_train_flags(), HYP, stop or StopRequests())


def rows_of(place):
    with open(place / "exp" / "evolve.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_search_writes_table_figure_best_values_and_weights(tmp_path, capsys):
    run(tmp_path)
    place, rows = tmp_path / "exp", rows_of(tmp_path)
    assert len(rows) == 6 and list(rows[0])[:4] == FIGURES
    assert float(rows[0]["lr0"]) == HYP.lr0 and rows[0]["state"] == "done"
    best = max(range(6), key=lambda number: float(rows[number]["lr0"]))
    # 0.1 mAP50 + 0.9 mAP50-95, which the played training sets to lr0.
    assert float(rows[best]["fitness"]) == pytest.approx(float(rows[best]["lr0"]))
    found = read_hyperparameters(place / "hyp_evolve.yaml")
    assert found.lr0 == pytest.approx(float(rows[best]["lr0"]), rel=1e-5) and found.lr0 > HYP.lr0
    assert (found.degrees, found.fliplr) == (HYP.degrees, HYP.fliplr)
    assert (place / "evolve.png").exists()
    assert f"trial {best + 1} with fitness" in capsys.readouterr().out
    left = [path.relative_to(place / "trials") for path in place.rglob("*.safetensors")]
    assert [str(path) for path in left] == [f"trial-{best:04d}/weights/best.safetensors"]


@pytest.mark.parametrize("stop", [1, 8])
def test_stopped_search_resumes_to_the_same_end(tmp_path, stop):
    run(tmp_path / "whole", "--nproc", "1")
    with pytest.raises(
        Suspended, match=r"suspended after \d trials?: the test asks; continue with "
    ):
        run(tmp_path / "cut", stop=StopAt(stop))
    assert FakeProcess.at_once == 0
    run(tmp_path / "cut")
    for name in ("evolve.csv", "hyp_evolve.yaml"):
        left, right = ((tmp_path / part / "exp" / name).read_text() for part in ("whole", "cut"))
        assert left == right


def test_finished_search_extends_only_with_equal_settings(tmp_path):
    run(tmp_path)
    run(tmp_path, "--evolve", "8", "--workers", "1")
    assert len(rows_of(tmp_path)) == 8
    for flags in (["--epochs", "4"], ["--img", "320"], ["--seed", "1"]):
        with pytest.raises(UserError, match="has a search with other settings; start a new search"):
            run(tmp_path, *flags)


def test_searches_with_one_storage_share_their_trials(tmp_path):
    storage = ["--storage", str(tmp_path / "shared")]
    with pytest.raises(Suspended):
        run(tmp_path / "one", *storage, stop=StopAt(12))
    begun = len(started())
    run(tmp_path / "two", *storage)
    assert started() == list(range(6)) and begun > 1
    run(tmp_path / "one", *storage)  # it ends the trial that it was stopped in
    assert started() == [*range(6), begun - 1]
    assert len(rows_of(tmp_path / "one")) == 6


def test_trials_run_side_by_side_one_per_device(tmp_path):
    run(tmp_path, "--nproc", "3")
    assert FakeProcess.most == 3 and sorted(started()) == list(range(6))


def test_failed_first_trials_are_retried(tmp_path):
    FakeProcess.failing = {0: 2, 1: 2, 2: 2}
    with pytest.raises(UserError, match=r"trial 1 has failed, see .*\.log"):
        run(tmp_path, "--nproc", "3")
    assert started() == [0, 1, 2]
    FakeProcess.failing = {}
    run(tmp_path, "--nproc", "3")
    assert len(rows_of(tmp_path)) == 6


def test_later_failed_trial_counts_as_one_of_the_requested(tmp_path):
    FakeProcess.failing = {2: 1, 4: -9}
    run(tmp_path)
    assert [row["trial"] for row in rows_of(tmp_path)] == list("1246")
    assert started() == list(range(6))


def test_hopeless_trials_are_pruned(tmp_path):
    run(tmp_path, "--evolve", "16", "--epochs", "9")
    assert {"pruned", "done"} == {row["state"] for row in rows_of(tmp_path)}


def test_evolve_refuses_a_launcher_and_resume(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="--evolve with --resume"):
        run(tmp_path, "--resume")
    monkeypatch.setattr(search, "this_process", lambda: Process(rank=0, world_size=2))
    with pytest.raises(UserError, match="start it without a launcher"):
        run(tmp_path)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("given", [False, True], ids=["own defaults", "common defaults"])
def test_trial_inherits_the_search_flags(task, given, tmp_path):
    flags = flags_of(TrainConfig)
    words = ["--task", task.name, "--epochs", "3", "--evolve", "1", "--project", str(tmp_path)]
    words += ["--storage", str(tmp_path / "F"), "--override", "lr0=0.02", "scale=0.4"]
    for name in task.defaults if given else ():  # the common default in place of the task's own
        words += [flags[name].names[0], str(COMMON[name])]
    config = TrainConfig(**task.completed(*read_train_flags(words)))
    hyp = read_hyperparameters(config.hyp, config.override)
    FakeProcess.failing = {0: 1}  # the figures of another task are not needed
    with mock.patch("sys.argv", ["train.py", *words]), pytest.raises(UserError, match="failed"):
        evolve(task, config, hyp, StopRequests())
    trial = TrainConfig(**task.completed(*read_train_flags(FakeProcess.commands[0][3:])))
    for name in COMMON.keys() - OWN:
        assert getattr(trial, name) == getattr(config, name), name
    assert read_hyperparameters(trial.hyp, trial.override) == hyp and trial.storage == ""


RANGED = {"x": Range(0, 1), "y": Range(0.01, 10, True)}
BEGIN = {"x": 0.2, "y": 1.0}


def open_study(path: Path, seed: int = 0, epochs: int = 1) -> SearchStudy:
    return SearchStudy(path, BEGIN, RANGED, {"epochs": epochs, "seed": seed})


def train(study: SearchStudy) -> None:
    """Run one trial, whose fitness is highest where x is 0.7."""
    trial = study.begin_trial()
    study.end_trial(trial, "COMPLETE", 1 - abs(trial.params["x"] - 0.7), {"metrics/a": 1.0})


def tried_values(path: Path, trials: int, seed: int = 0, cut: int = 0) -> list[dict[str, float]]:
    """Return the values of a search that another process goes on with after `cut` trials."""
    for count in (cut, trials - cut):
        study = open_study(path, seed)
        for _ in range(count):
            train(study)
    return [trial.params for trial in study.trials("COMPLETE")]


def test_zero_and_idle_hyperparameters_are_not_searched():
    ranges, values = searched_ranges(HYP), dataclasses.asdict(HYP)
    assert {name for name in RANGES if values[name] == 0} == RANGES.keys() - ranges.keys()
    hyp = read_hyperparameters(CLASSIFIER_HYPERPARAMETERS, ["mosaic=1"])
    assert searched_ranges(hyp, CLASSIFICATION.unused).keys() == {
        "lr0", "lrf", "momentum", "weight_decay", "warmup_momentum", "hsv_s", "hsv_v", "scale",
    }  # fmt: skip


def test_search_range_includes_the_initial_value():
    ranges = searched_ranges(dataclasses.replace(HYP, cls=6.0, box=0.01))
    assert (ranges["cls"].high, ranges["box"].low, ranges["obj"]) == (6.0, 0.01, RANGES["obj"])
    for name, found in RANGES.items():
        for value in (found.low, found.high) if name != "copy_paste" else ():  # it needs polygons
            assert getattr(dataclasses.replace(HYP, **{name: value}), name) == value


def test_first_trial_is_initial_and_later_ones_converge(tmp_path):
    values = tried_values(tmp_path / "search", 30)
    assert values[0] == BEGIN
    assert min(abs(found["x"] - 0.7) for found in values) < 0.05
    assert all(0.01 <= found["y"] <= 10 for found in values)


def test_search_depends_on_the_seed_and_resumes_exactly(tmp_path):
    whole = tried_values(tmp_path / "whole", 6)
    assert tried_values(tmp_path / "other", 6, seed=1) != whole
    for cut in (1, 4):
        assert tried_values(tmp_path / f"cut-{cut}", 6, cut=cut) == whole


def test_trial_below_the_median_is_pruned_after_a_third(tmp_path):
    study = open_study(tmp_path / "search", epochs=9)
    for number in range(6):
        trial = study.begin_trial()
        for epoch in range(9):
            trial.report(0.1 * number, epoch)
        study.end_trial(trial, "COMPLETE", 0.1 * number, {})
    for fitness, is_hopeless in ((0.01, True), (0.4, False)):
        trial = study.begin_trial()
        for epoch in range(4):
            assert not trial.should_prune()
            trial.report(fitness, epoch)
        assert bool(trial.should_prune()) is is_hopeless  # the median of the others is 0.25


def test_search_storage_is_json_without_pickle(tmp_path, monkeypatch):
    tried_values(tmp_path / "search", 12)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, None)
    assert len(tried_values(tmp_path / "search", 2)) == 14
    for line in (tmp_path / "search").read_text().splitlines():
        assert isinstance(json.loads(line), dict)


@pytest.mark.parametrize("content", ["{\n{}\n", "[1]\n"])
def test_damaged_or_foreign_search_file_is_refused(tmp_path, content):
    (tmp_path / "damaged").write_text(content)
    with pytest.raises(UserError, match="is not a search: .*; start a new search with another"):
        open_study(tmp_path / "damaged")
    open_study(tmp_path / "search")
    with pytest.raises(UserError, match="has a search with other settings; start a new search"):
        open_study(tmp_path / "search", seed=1)
    with pytest.raises(UserError, match="--storage .* is not a search: [^[]*: Is a directory;"):
        open_study(tmp_path)


def test_missing_optuna_error_names_the_install_command(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    command = re.escape(install_command("optuna"))
    with pytest.raises(UserError, match=f"--evolve needs optuna; install it: {command}"):
        open_study(tmp_path / "search")
