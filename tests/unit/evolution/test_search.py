"""The course of a search: trials side by side, failures, stops, and what is left on disk."""

import csv
import itertools
import math

import pytest

from backend.processes import Process
from utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from utils.cli.train_config import TrainConfig, parse_train_flags
from utils.errors import UserError
from utils.evolution import outputs, search
from utils.evolution.ranges import searched_ranges
from utils.evolution.records import FILE, TrialRecord, read_records
from utils.evolution.search import devices_of, evolve
from utils.evolution.trial_run import TrialRun
from utils.processes.suspend import StopRequests, Suspended
from utils.tasks.classification import CLASSIFICATION

HYP = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
FIGURES = ["metrics/precision", "metrics/recall", "metrics/mAP_0.5", "metrics/mAP_0.5:0.95"]
HEADER = ",".join(["epoch", *FIGURES, "val/box_loss"]) + "\n"


class FakeProcess:
    """A training that writes an epoch each time that it is looked at.

    The higher lr0 is, the better. started: how often each trial began; failing: trials that do.
    """

    started: list = []
    failing: dict = {}
    at_once = most = 0

    def __init__(self, run, epochs, device):
        self.run, self.epochs, self.device, self.code = run, epochs, device, None
        FakeProcess.at_once += 1
        FakeProcess.most = max(FakeProcess.most, FakeProcess.at_once)
        FakeProcess.started.append((run.record.number, device))
        run.folder.mkdir(parents=True, exist_ok=True)
        (run.folder / "weights").mkdir(exist_ok=True)
        for name in ("best", "last", "state-00000001"):
            (run.folder / "weights" / f"{name}.safetensors").write_bytes(b"x")
        if not self.results.exists():
            self.results.write_text(HEADER)

    @property
    def results(self):
        return self.run.folder / "results.csv"

    def end(self, code):
        self.code = code
        FakeProcess.at_once -= 1

    def poll(self):
        if self.code is not None:
            return self.code
        number = self.run.record.number
        lines = self.results.read_text().splitlines()
        if number in self.failing:
            self.run.log.write_text("first\nerror: this is wrong\n")
            self.end(self.failing[number])
        elif len(lines) - 1 == self.epochs:
            self.end(0)
        else:
            value = self.run.record.values["lr0"]
            with self.results.open("a") as file:
                file.write(f"{len(lines) - 1},0.5,0.5,{value},{value},0.1\n")
        return self.code

    def send_signal(self, number):
        if self.code is None:
            self.end(75)


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    """Trainings are played, and no process is looked for or ended."""

    def start(self, config, hyp, backend, device, environment):
        self._process = FakeProcess(self, config.epochs, device)

    monkeypatch.setattr(TrialRun, "start", start)
    monkeypatch.setattr(search, "POLL_SECONDS", 0)
    # Drawing takes longer than all else; tests/unit/report/plots/test_evolution.py has it.
    monkeypatch.setattr(outputs, "plot_evolution", drawn)
    for name in ("adopt_orphans", "kill_descendants"):
        monkeypatch.setattr(search, name, lambda: None)
    FakeProcess.started, FakeProcess.failing = [], {}
    FakeProcess.at_once = FakeProcess.most = 0


def drawn(values, fitness, path):
    path.write_text(f"{len(fitness)} trials")


class StopAt(StopRequests):
    """Asks for a stop at the so-manieth time that the search asks."""

    def __init__(self, count):
        super().__init__()
        self.left = count

    def cause(self):
        self.left -= 1
        return None if self.left else "the test asks"


def config(folder, *flags):
    words = ["--project", str(folder), "--epochs", "3", "--device", "cpu", *flags]
    return parse_train_flags(["--evolve", "6", *words])


def run(folder, *flags, hyp=HYP, stop=None):
    evolve(config(folder, *flags), hyp, stop or StopRequests())


def states(folder):
    return [record.state for record in read_records(folder, searched_ranges(HYP))]


def test_a_search_leaves_a_table_a_figure_and_the_best_hyper_parameters(tmp_path, capsys):
    run(tmp_path)
    folder = tmp_path / "exp"
    records = read_records(folder, searched_ranges(HYP))
    best = max(records, key=lambda record: record.values["lr0"])
    found = read_hyperparameters(folder / "hyp_evolve.yaml")
    assert found.lr0 == best.values["lr0"] > HYP.lr0
    assert (found.degrees, found.fliplr) == (HYP.degrees, HYP.fliplr)
    assert read_hyperparameters(folder / "hyp.yaml") == HYP
    with open(folder / "evolve.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 and list(rows[0])[:4] == FIGURES
    assert float(rows[0]["lr0"]) == HYP.lr0 and rows[0]["state"] == "done"
    # 0.1 mAP50 + 0.9 mAP50-95, which the played training sets to lr0.
    assert float(rows[best.number]["fitness"]) == pytest.approx(best.values["lr0"], rel=1e-5)
    assert (folder / "evolve.png").read_text() == "6 trials"
    assert f"trial {best.number + 1} with fitness" in capsys.readouterr().out


def test_a_search_leaves_alone_what_its_task_does_not_have(tmp_path):
    run(tmp_path, "--task", "classify")
    folder = tmp_path / "exp"
    values = read_records(folder, searched_ranges(HYP, CLASSIFICATION.unused))[0].values
    assert "lr0" in values and {"box", "obj", "mosaic"}.isdisjoint(values)


def test_only_the_best_trial_keeps_weights(tmp_path):
    run(tmp_path)
    records = read_records(tmp_path / "exp", searched_ranges(HYP))
    best = max(records, key=lambda record: record.best)
    left = [path.relative_to(tmp_path / "exp") for path in tmp_path.rglob("*.safetensors")]
    assert [str(path) for path in left] == [
        f"trials/trial-{best.number:04d}/weights/best.safetensors"
    ]


@pytest.mark.parametrize("stop", [1, 2, 5, 9, 14])
def test_a_search_that_was_stopped_goes_on_to_the_same_end(tmp_path, stop):
    run(tmp_path / "whole", "--nproc", "1")
    with pytest.raises(Suspended, match=r"stops after \d trials?: the test asks; go on with "):
        run(tmp_path / "cut", stop=StopAt(stop))
    assert FakeProcess.at_once == 0
    run(tmp_path / "cut")
    assert [path.name for path in (tmp_path / "cut").iterdir()] == ["exp"]
    for name in (FILE, "evolve.csv", "hyp_evolve.yaml"):
        left, right = ((tmp_path / part / "exp" / name).read_text() for part in ("whole", "cut"))
        assert left == right


def test_a_search_that_is_done_is_followed_by_a_new_one_or_by_more_trials(tmp_path):
    run(tmp_path)
    run(tmp_path, "--evolve", "8")
    assert len(states(tmp_path / "exp")) == 8
    run(tmp_path)
    assert len(states(tmp_path / "exp2")) == 6


@pytest.mark.parametrize("flags", [["--epochs", "4"], ["--img", "320"], ["--seed", "1"]])
def test_other_settings_are_another_search(tmp_path, flags):
    for words in ([], flags):
        with pytest.raises(Suspended):
            run(tmp_path, *words, stop=StopAt(5))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exp", "exp2"]
    with pytest.raises(UserError, match="has another search; give another --name"):
        run(tmp_path, *flags, "--exist-ok", "--optimizer", "Adam")


def test_trials_run_side_by_side_one_a_device(tmp_path):
    run(tmp_path, "--nproc", "3")
    assert FakeProcess.most == 3
    assert sorted(number for number, _ in FakeProcess.started) == list(range(6))
    assert {device for _, device in FakeProcess.started} == {"cpu"}
    assert devices_of(parse_train_flags(["--device", "0,2"])) == ["0", "2"]
    assert devices_of(parse_train_flags([])) == [""]


def test_the_first_trial_is_alone_until_it_has_an_epoch(tmp_path):
    FakeProcess.failing = {0: 2}
    with pytest.raises(UserError, match=r"trial 1 has failed, see .*\.log:\nfirst\nerror: this is"):
        run(tmp_path, "--nproc", "3")
    assert FakeProcess.started == [(0, "cpu")]


def test_a_failed_trial_is_passed_over_and_five_in_a_row_end_the_search(tmp_path):
    FakeProcess.failing = {2: 1, 4: -9}
    run(tmp_path / "a")
    assert states(tmp_path / "a" / "exp") == ["done", "done", "failed", "done", "failed", "done"]
    FakeProcess.failing = dict.fromkeys(range(1, 10), 1)
    with pytest.raises(UserError, match="trial 6 has failed"):
        run(tmp_path / "b", "--evolve", "20")


def test_hopeless_trials_are_ended_early(tmp_path):
    run(tmp_path, "--evolve", "16", "--epochs", "9")
    records = read_records(tmp_path / "exp", searched_ranges(HYP))
    pruned = [record for record in records if record.state == "pruned"]
    assert pruned and all(3 < len(record.fitness) < 9 for record in pruned)
    assert all(len(record.fitness) == 9 for record in records if record.state == "done")


@pytest.mark.parametrize(
    "content",
    ["{", "[1]\n", '{"number": 0}\n', '{"number":0,"state":"x","values":{},'
     '"fitness":[],"figures":{}}\n'],
)  # fmt: skip
def test_a_damaged_file_of_trials_is_refused(tmp_path, content):
    with pytest.raises(Suspended):
        run(tmp_path, stop=StopAt(3))
    (tmp_path / "exp" / FILE).write_text(content)
    with pytest.raises(UserError, match="trials.jsonl.* begin a new search under another --name"):
        run(tmp_path)


def test_evolve_goes_on_without_resume(tmp_path):
    for flags in (["--resume"], ["--replay", "1:1", "--weights", "x"]):
        with pytest.raises(UserError, match=f"leave {flags[0]} out"):
            config(tmp_path, *flags)


def test_a_process_of_a_launcher_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "this_process", lambda: Process(rank=0, world_size=2))
    with pytest.raises(UserError, match="leave the launcher out"):
        run(tmp_path)


def test_searches_lie_in_their_own_folder_unless_a_project_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evolve(TrainConfig(evolve=1, epochs=1, device="cpu"), HYP, StopRequests())
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["evolve"]
    assert next(itertools.chain(tmp_path.glob("runs/evolve/exp/evolve.csv"))).exists()


def test_a_search_whose_first_trial_failed_tries_it_again(tmp_path):
    FakeProcess.failing = {0: 1}
    with pytest.raises(UserError, match="--evolve: "):
        run(tmp_path)
    FakeProcess.failing = {}
    run(tmp_path)
    assert states(tmp_path / "exp") == ["done"] * 6
    assert not (tmp_path / "exp2").exists()


@pytest.mark.parametrize(
    ("columns", "fitness"),
    [
        ({"precision": 0.9, "recall": 0.9, "mAP_0.5": 0.5, "mAP_0.5:0.95": 0.25}, 0.275),
        ({"mAP_0.5": 0.0, "mAP_0.5:0.95": math.nan}, math.nan),
    ],
)
def test_a_trial_is_judged_by_the_figures_of_its_task(tmp_path, columns, fitness):
    run = TrialRun(tmp_path, TrialRecord(0, {}))
    run.folder.mkdir()
    names = ",".join(f"metrics/{name}" for name in columns)
    values = ",".join(map(str, columns.values()))
    (run.folder / "results.csv").write_text(f"epoch,{names}\n0,{values}\n")
    run.read_epochs()
    assert run.record.fitness == pytest.approx([fitness], nan_ok=True)


def test_a_trial_without_the_figures_of_any_task_is_refused(tmp_path):
    run = TrialRun(tmp_path, TrialRecord(0, {}))
    run.folder.mkdir()
    (run.folder / "results.csv").write_text("epoch,metrics/mAP_0.5\n0,0.5\n")
    with pytest.raises(UserError, match="none of the figures that a task is judged by"):
        run.read_epochs()
