"""duet folds: one training per fold, and what they have in common."""

import shlex
import statistics

import pytest
import yaml

from duet import folds
from duet.utils.errors import UserError
from duet.utils.report.results import read_results
from tests.small import write_small_dataset
from tests.train.short_runs import short_flags


def run(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["duet folds", *map(str, words)])
    folds.main()


@pytest.fixture
def data(tmp_path):
    path = write_small_dataset(tmp_path)
    document = yaml.safe_load(path.read_text())
    del document["val"]
    path.write_text(yaml.safe_dump(document))
    return path


def test_each_fold_is_trained_and_metrics_are_joined(monkeypatch, capsys, tmp_path, data):
    flags = short_flags(tmp_path, "--epochs", 1, data=data)
    run(monkeypatch, "--folds", 2, *flags)
    named = [yaml.safe_load((tmp_path / f"exp-fold{k}" / "opt.yaml").read_text()) for k in (1, 2)]
    assert [run["train_part"] for run in named] == ["1/2", "2/2"]
    lines = capsys.readouterr().out.splitlines()
    line = next(line for line in lines if line.startswith("mAP_0.5:0.95"))
    rows = [read_results(tmp_path / f"exp-fold{k}" / "results.csv")[1][-1] for k in (1, 2)]
    values = [row["metrics/mAP_0.5:0.95"] for row in rows]
    mean, deviation = statistics.mean(values), statistics.stdev(values)
    each = " ".join(f"{value:.3f}" for value in values)
    assert line.split(None, 3)[1:] == [f"{mean:.3f}", f"{deviation:.3f}", each]


def test_print_shows_the_commands_of_the_folds(monkeypatch, capsys):
    run(monkeypatch, "--folds", "3", "--print", "--data", "mine", "--name", "a")
    lines = capsys.readouterr().out.splitlines()
    assert [shlex.split(line)[-2:] for line in lines] == [
        [f"--split={fold}/3", f"--name=a-fold{fold}"] for fold in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--split", "0.8"], "--split does not go with folds; leave it out"),
        (["--nproc", "2"], "--nproc does not go with folds"),
        (["--device", "0,1"], "--device 0,1: folds are trained on one device"),
        (["--folds", "101"], "--folds 101; accepted: a whole number from 2 to 100"),
        (["--folds", "1"], "--folds 1; accepted: a whole number from 2 to 100"),
        (["--fold"], "unknown flag --fold"),
    ],
)
def test_flags_incompatible_with_folds_are_refused(monkeypatch, words, message):
    with pytest.raises(UserError, match=message):
        run(monkeypatch, *words)
