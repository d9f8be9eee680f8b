"""The loggers of --loggers: what each writes, and that none can end a run."""

import json
import math
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from utils.errors import UserError
from utils.report.loggers.chosen import LOGGERS, Loggers, make_loggers
from utils.report.loggers.events import EpochEnds, RunBegins, RunEnds
from utils.report.results import Results

MAP = "metrics/mAP_0.5:0.95"


def begins(folder: Path, epochs_done: int = 0) -> RunBegins:
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"project": str(folder.parent), "epochs": 3, "freeze": ["0"]}
    return RunBegins(folder, settings, {"lr0": 0.01}, ["cat", "狗"], epochs_done)


def ends(folder: Path) -> RunEnds:
    path = folder / "results.png"
    cv2.imwrite(str(path), np.full((4, 6, 3), (10, 20, 30), np.uint8))
    return RunEnds(2, {"mAP_0.5:0.95": 0.25}, [path], [])


def epoch(number: int) -> EpochEnds:
    return EpochEnds(number, {MAP: number / 8, "val/box_loss": math.nan})


def run_in_two_parts(name: str, folder: Path) -> None:
    """Epochs 1 and 2, of which the second was not saved, then 2 and 3."""
    first, second = make_loggers([name]), make_loggers([name])
    first.run_begins(begins(folder))
    first.epoch_ends(epoch(1))
    first.epoch_ends(epoch(2))
    first.close()
    second.run_begins(begins(folder, epochs_done=1))
    second.epoch_ends(epoch(2))
    second.epoch_ends(epoch(3))
    second.run_ends(ends(folder))
    second.close()


def test_tensorboard_reads_each_epoch_once_and_the_plots(tmp_path, caplog):
    run_in_two_parts("tensorboard", tmp_path / "runs/exp")
    assert not caplog.records
    events = read_events(tmp_path / "runs/exp/tensorboard")
    scalars = {}
    for event in events:  # as TensorBoard does: a later part replaces what a restart purges
        if event.session_log.status == event.session_log.START and event.step:
            scalars = {key: value for key, value in scalars.items() if key[1] < event.step}
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                scalars[value.tag, event.step] = value.simple_value
    name = MAP.replace(":", "_")  # the package allows no colon
    assert scalars == {(name, 1): 0.125, (name, 2): 0.25, (name, 3): 0.375}
    images = [value for event in events for value in event.summary.value if value.HasField("image")]
    assert [image.tag for image in images] == ["results.png"]
    pixels = cv2.imdecode(np.frombuffer(images[0].image.encoded_image_string, np.uint8), 1)
    assert pixels.shape == (4, 6, 3) and (pixels == (10, 20, 30)).all()


def read_events(folder: Path) -> list:
    """All events of a folder, in the order of its files."""
    from tensorboardX.proto.event_pb2 import Event

    events = []
    for path in sorted(folder.iterdir()):
        content, at = path.read_bytes(), 0
        while at < len(content):  # length (8 bytes), its checksum (4), event, checksum (4)
            length = int.from_bytes(content[at : at + 8], "little")
            events.append(Event.FromString(content[at + 12 : at + 12 + length]))
            at += 12 + length + 4
    return events


def test_mlflow_has_one_run_with_each_epoch_and_the_plots(tmp_path, caplog, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "my runs/ex'p"
    run_in_two_parts("mlflow", folder)
    assert not [record for record in caplog.records if "--loggers" in record.getMessage()]
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder.parent}/mlflow.db")
    experiment = client.get_experiment_by_name("my runs")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "ex'p" and run.info.status == "FINISHED"
    assert run.data.params == {
        "project": str(folder.parent), "epochs": "3", "freeze": "['0']", "lr0": "0.01",
    }  # fmt: skip
    history = client.get_metric_history(run.info.run_id, MAP.replace(":", "-"))
    assert {metric.step: metric.value for metric in history} == {1: 0.125, 2: 0.25, 3: 0.375}
    assert run.data.metrics["best/mAP_0.5-0.95"] == 0.25
    assert [file.path for file in client.list_artifacts(run.info.run_id, "plots")] == [
        "plots/results.png"
    ]


def test_wandb_is_offline_and_goes_on_under_its_id(tmp_path, caplog, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    folder = tmp_path / "runs/exp"
    run_in_two_parts("wandb", folder)
    assert not caplog.records
    parts = [path.name for path in (folder / "wandb").glob("*run-*-*")]
    assert len(parts) == 2 and all(part.startswith("offline-run-") for part in parts)
    assert len({part.split("-")[3] for part in parts}) == 1  # offline-run-TIME-ID


class Recorder:
    """A logger of a user's own."""

    events: list = []

    def run_begins(self, event):
        self.events.append(event)

    def epoch_ends(self, event):
        if event.epoch == 2:
            raise OSError(28, "No space left on device")
        self.events.append(event)

    def run_ends(self, event):
        self.events.append(event)

    def close(self):
        self.events.append("closed")


def test_a_class_of_ones_own_gets_all_events(tmp_path, monkeypatch):
    monkeypatch.setattr(Recorder, "events", [])
    loggers = make_loggers([f"{__name__}:Recorder"])
    told = [begins(tmp_path), epoch(1), ends(tmp_path)]
    loggers.run_begins(told[0])
    loggers.epoch_ends(told[1])
    loggers.run_ends(told[2])
    loggers.close()
    assert [*told, "closed"] == Recorder.events


def test_a_logger_that_fails_is_named_once_and_the_others_go_on(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(Recorder, "events", [])
    other = Recorder()
    other.epoch_ends = Recorder.events.append
    loggers = Loggers({"full": Recorder(), "other": other})
    for number in (1, 2, 3):
        loggers.epoch_ends(epoch(number))
    assert [event.epoch for event in Recorder.events] == [1, 1, 2, 3]
    (record,) = caplog.records
    assert "--loggers full: OSError: [Errno 28] No space left" in record.getMessage()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tensorbord", "--loggers tensorbord; accepted: tensorboard, wandb, mlflow, or module:Cl"),
        ("nowhere_at_all:X", "No module named 'nowhere_at_all'; put its folder into PYTHONPATH"),
        ("math:Nothing", "has no attribute 'Nothing'"),
        (":X", "--loggers :X: Empty module name"),
        ("collections:Counter", "lacks run_begins, epoch_ends, run_ends, close; utils/report"),
    ],
)
def test_a_wrong_name_is_refused(name, message):
    with pytest.raises(UserError, match=message):
        make_loggers([name])


@pytest.mark.parametrize(
    ("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb"), ("mlflow", "mlflow")]
)
def test_an_absent_package_is_named_with_its_install_command(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"--loggers {name} needs {package}: pip install {name}"):
        make_loggers([name])
    assert name in LOGGERS


def test_results_are_written_as_json_lines_too(tmp_path):
    results = Results(["epoch", MAP])
    results.append({"epoch": 0, MAP: 0.125})
    results.append({"epoch": 1, MAP: math.nan, "x/new": 1e-7})
    path = tmp_path / "results.jsonl"
    results.write_lines(path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [
        {"epoch": 0, MAP: 0.125, "x/new": None},
        {"epoch": 1, MAP: None, "x/new": 1e-7},
    ]
