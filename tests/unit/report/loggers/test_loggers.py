"""The loggers of --loggers: what each writes, and that none can end a run."""

import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from duet.utils.errors import UserError
from duet.utils.optional import install_command
from duet.utils.report.events import (
    EpochEnds,
    Loggers,
    RunBegins,
    RunEnds,
    check_loggers,
    make_loggers,
)
from duet.utils.report.results import Results

MAP = "metrics/mAP_0.5:0.95(B)"


def begins(folder: Path, epochs_done: int = 0) -> RunBegins:
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"project": str(folder.parent), "epochs": 3, "freeze": ["0"]}
    return RunBegins(folder, settings, {"lr0": 0.01}, ["cat", "狗"], epochs_done, epochs_done > 0)


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


def test_tensorboard_receives_each_epoch_once_and_the_plots(tmp_path, caplog):
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
    name = "metrics/mAP_0.5_0.95_B_"  # the package allows neither colon nor bracket
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


class FakeWandb(SimpleNamespace):
    """As much of wandb as is used. The real one is large."""

    def __init__(self) -> None:
        super().__init__(runs=[], Settings=dict, Image=lambda path: Path(path).name)

    def init(self, **given):
        given["id"] = given["id"] or f"id{len(self.runs)}"
        folder = Path(given["dir"]) / "wandb" / f"offline-run-20261122_0829{len(self.runs)}4"
        folder.with_name(f"{folder.name}-{given['id']}").mkdir(parents=True)
        run = SimpleNamespace(given=given, rows=[], summary={}, ended=False)
        run.log = lambda values, step=None: run.rows.append((step, values))
        run.finish = lambda: setattr(run, "ended", True)
        self.runs.append(run)
        return run


@pytest.mark.parametrize("mode", [None, "online"])
def test_wandb_is_offline_by_default_and_keeps_its_id(tmp_path, caplog, monkeypatch, mode):
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if mode:
        monkeypatch.setenv("WANDB_MODE", mode)
    run_in_two_parts("wandb", tmp_path / "runs/exp")
    assert not caplog.records
    first, second = wandb.runs
    assert [run.given["mode"] for run in wandb.runs] == [mode or "offline"] * 2
    assert [run.given["id"] for run in wandb.runs] == ["id0", "id0"]
    assert [run.given["resume"] for run in wandb.runs] == [None, "allow" if mode else None]
    assert (first.given["project"], first.given["name"]) == ("runs", "exp")
    assert first.given["config"]["hyperparameters"] == {"lr0": 0.01}
    assert first.rows == [(1, {MAP: 0.125}), (2, {MAP: 0.25})]
    assert second.rows[:2] == [(2, {MAP: 0.25}), (3, {MAP: 0.375})]
    assert second.rows[2:] == [(None, {"results": "results.png"})]
    assert second.summary == {"best/mAP_0.5:0.95": 0.25, "best/epoch": 2}
    assert first.ended and second.ended


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


class Demanding(Recorder):
    def __init__(self, address):
        self.address = address


def test_custom_logger_class_receives_all_events(tmp_path, monkeypatch):
    monkeypatch.setattr(Recorder, "events", [])
    loggers = make_loggers([f"{__name__}:Recorder"])
    reported = [begins(tmp_path), epoch(1), ends(tmp_path)]
    loggers.run_begins(reported[0])
    loggers.epoch_ends(reported[1])
    loggers.run_ends(reported[2])
    loggers.close()
    assert [*reported, "closed"] == Recorder.events


def test_failing_logger_is_named_once_and_others_continue(tmp_path, monkeypatch, caplog):
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
        ("tensorbord", "--loggers tensorbord; accepted: tensorboard, wandb, your own module:Class"),
        ("nowhere_at_all:X", "No module named .nowhere_at_all.; add the module's folder to PYTH"),
        (":X", "--loggers :X: ValueError: Empty module name"),
        (f"{__name__}:Demanding", "Demanding: TypeError: .* missing 1 required"),
        ("collections:Counter", "lacks run_begins, epoch_ends, run_ends, close; see utils/report"),
    ],
)
def test_wrong_logger_name_is_refused(name, message):
    with pytest.raises(UserError, match=message):
        make_loggers([name])


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_absent_package_error_names_its_install_command(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    command = re.escape(install_command(package))
    with pytest.raises(UserError, match=f"--loggers {name} needs {package}; install it: {command}"):
        make_loggers([name])


def test_results_are_written_as_json_lines(tmp_path):
    results = Results(["epoch", MAP])
    results.append({"epoch": 0, MAP: 0.125})
    results.append({"epoch": 1, MAP: math.nan, "x/new": 1e-7})
    path = tmp_path / "results.jsonl"
    results.write_lines(path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [{"epoch": 0, MAP: 0.125, "x/new": None}, {"epoch": 1, MAP: None, "x/new": 1e-7}]


def test_start_check_does_not_instantiate_a_custom_logger(monkeypatch):
    def begun(self):
        raise AssertionError("made")

    monkeypatch.setattr(Recorder, "__init__", begun)
    check_loggers([f"{__name__}:Recorder", "tensorboard"])
    with pytest.raises(UserError, match="accepted: tensorboard"):
        check_loggers(["nothing"])
