"""utils/state/files.py: which states stay, and what last and best are."""

import dataclasses
import os

import numpy as np
import pytest

from duet.utils.errors import UserError
from duet.utils.state.files import StateFiles
from duet.utils.weights.checkpoint import Checkpoint, load_checkpoint
from tests.unit.weights.test_checkpoint import HEADER


def state(number):
    header = dataclasses.replace(HEADER, batch_number=number)
    arrays = {"weight": np.full(3, number, np.float32)}
    return Checkpoint(header, arrays, arrays, {})


def numbers(folder):
    found = {}
    for path in sorted((folder / "weights").iterdir()):
        found[path.name.removesuffix(".safetensors")] = load_checkpoint(path).header.batch_number
    return found


@pytest.fixture(params=["links", "copies"])
def kind_of_folder(request, monkeypatch):
    """Hard links, or a file system that refuses them."""

    def refuse(*paths):
        raise OSError(1, "Operation not permitted")

    if request.param == "copies":
        monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("kind_of_folder")
def test_the_newest_states_stay_and_best_outlives_its_state(tmp_path):
    files = StateFiles(tmp_path, keep=2)
    for number in (1, 2, 3, 4):
        files.save(state(number), is_best=number == 2)
    assert numbers(tmp_path) == {"best": 2, "last": 4, "state-00000003": 3, "state-00000004": 4}
    assert [path.name[6:14] for path in files.newest_first()] == ["00000004", "00000003"]


@pytest.mark.usefixtures("kind_of_folder")
def test_a_state_of_the_same_number_takes_the_place_of_the_one_before(tmp_path):
    files = StateFiles(tmp_path, keep=2)
    files.save(state(5), is_best=True)
    later = dataclasses.replace(state(5), header=dataclasses.replace(HEADER, batch_number=5))
    files.save(dataclasses.replace(later, optimizer={"momentum": np.arange(2)}), is_best=False)
    found = {path.stem: load_checkpoint(path) for path in (tmp_path / "weights").iterdir()}
    kept = {name: len(checkpoint.optimizer) for name, checkpoint in found.items()}
    assert kept == {"best": 0, "last": 1, "state-00000005": 1}


@pytest.mark.usefixtures("kind_of_folder")
def test_a_state_under_a_further_name_outlives_its_state(tmp_path):
    files = StateFiles(tmp_path, keep=1)
    files.save(state(3), is_best=False, also="epoch0")
    files.save(state(6), is_best=False)
    assert numbers(tmp_path) == {"epoch0": 3, "last": 6, "state-00000006": 6}
    files.remove_all()
    assert numbers(tmp_path) == {"epoch0": 3, "last": 6}


def test_states_of_a_future_that_was_left_go_once_there_is_a_new_one(tmp_path):
    files = StateFiles(tmp_path, keep=2)
    for number in (7, 8):
        files.save(state(number), is_best=False)
    files.save(state(3), is_best=False)
    assert numbers(tmp_path) == {"last": 3, "state-00000003": 3}


def test_a_state_that_cannot_be_written_names_the_folder_and_the_whole_one(tmp_path, monkeypatch):
    files = StateFiles(tmp_path, keep=1)
    files.save(state(1), is_best=True)

    def refuse(*arguments):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(UserError) as error:
        files.save(state(2), is_best=True)
    for part in (
        str(files.folder / "state-00000002.safetensors"),
        "Read-only file system",
        "state-00000001",
        "--resume",
    ):
        assert part in str(error.value)
    monkeypatch.undo()
    assert numbers(tmp_path) == {"best": 1, "last": 1, "state-00000001": 1}
