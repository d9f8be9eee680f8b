"""Anchors fitted at the start of a run are in all its weights, and it goes on with them."""

import numpy as np
import pytest
import yaml

from backend import ops
from models.stored import detector_of_weights
from tests.equal_runs import assert_equal_runs
from tests.small import write_small_dataset, write_tiny_model
from tests.train.short_runs import StopAt, start
from utils.data.anchors.fit import label_sizes, measure_fit
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import load_split
from utils.processes.suspend import Suspended
from utils.state.checkpoint import load_checkpoint

FAR_TOO_LARGE = [[400, 500, 600, 300, 500, 500], [700, 900, 800, 800, 900, 700]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a dataset and a model whose anchors are far too large for it."""
    folder = tmp_path_factory.mktemp("inputs")
    write_small_dataset(folder)
    path = write_tiny_model(folder)
    document = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**document, "anchors": FAR_TOO_LARGE}))
    return folder


@pytest.fixture(scope="module")
def flags(folder):
    return [
        "--data", str(folder / "shapes" / "shapes.yaml"), "--img", "64", "--batch", "4",
        "--workers", "0", "--device", "cpu", "--epochs", "2", "--project", str(folder),
        "--noplots",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def whole(folder, flags):
    """The folder of a run without interruption."""
    start([*flags, "--cfg", str(folder / "tiny.yaml"), "--name", "whole"])
    return folder / "whole"


def anchors_of(folder, name="last"):
    """The anchors that the head of a run's weights has, (levels, A, 2) pixels."""
    weights = load_checkpoint(folder / "weights" / f"{name}.safetensors")
    head = detector_of_weights(weights).head
    in_pixels = ops.to_numpy(head.anchors) * np.reshape(head.strides, (-1, 1, 1))
    listed = np.reshape(weights.header.model["anchors"], in_pixels.shape)
    np.testing.assert_allclose(in_pixels, listed, rtol=1e-6)  # float32
    return in_pixels


def test_fitted_anchors_are_in_the_weights_and_in_their_description(flags, whole):
    samples = load_split(load_dataset(flags[1]), "train")
    sizes = label_sizes(samples, 64)
    for name in ("last", "best"):
        found = anchors_of(whole, name)
        assert found.shape == (2, 3, 2)
        assert measure_fit(sizes, found.reshape(-1, 2), 4).best_possible_recall == 1
    assert measure_fit(sizes, np.reshape(FAR_TOO_LARGE, (-1, 2)), 4).best_possible_recall < 0.5


def test_a_resumed_run_keeps_its_anchors_and_ends_as_the_whole_one(folder, flags, whole, caplog):
    run = [*flags, "--cfg", str(folder / "tiny.yaml"), "--name", "cut", "--resume", "auto"]
    with pytest.raises(Suspended):
        start(run, StopAt(4))
    caplog.clear()
    with caplog.at_level("INFO"):
        start(run)
    assert "resumed after" in caplog.text and "anchors:" not in caplog.text
    assert_equal_runs(folder / "cut", whole)


def test_weights_with_fitted_anchors_are_trained_on_as_they_are(folder, flags, whole, caplog):
    weights = str(whole / "weights" / "last.safetensors")
    with caplog.at_level("INFO"):
        start([*flags, "--weights", weights, "--epochs", "1", "--name", "on"])
    assert "anchors: the model's fit the labels well: best possible recall 1.000" in caplog.text
    assert anchors_of(folder / "on").tolist() == anchors_of(whole).tolist()


def test_anchors_asked_for_anew_replace_those_of_the_weights(folder, flags, whole):
    weights = str(whole / "weights" / "last.safetensors")
    asked = ["--override", "anchors=2.2"]
    start([*flags, "--weights", weights, "--epochs", "1", "--name", "new", *asked])
    assert anchors_of(folder / "new").shape == (2, 2, 2)
    hyp = yaml.safe_load((folder / "new" / "hyp.yaml").read_text())
    assert hyp["anchors"] == 2.2


def test_noautoanchor_trains_with_the_anchors_of_the_yaml(folder, flags):
    cfg = ["--cfg", str(folder / "tiny.yaml"), "--noautoanchor", "--epochs", "1"]
    start([*flags, *cfg, "--name", "kept"])
    assert anchors_of(folder / "kept").reshape(2, 6).tolist() == FAR_TOO_LARGE
