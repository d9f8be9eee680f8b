"""Trainings whose batches have another order, shape or size; and one that is interrupted."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from duet.backend import ops
from duet.models.heads.anchor.head import AnchorHead
from duet.models.training import loop, step
from duet.utils.processes.suspend import Suspended
from duet.utils.weights.checkpoint import load_checkpoint
from tests.train.short_runs import StopAt, assert_equal_runs, folder_of, short_flags, start

RECIPES = {
    "rect": "--rect", "multi-scale": "--multi-scale", "weights": "--image-weights",
    "one": "--single-cls --fraction 0.5",
}  # fmt: skip


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """train.py's flags for runs with 3 batches an epoch, unless the recipe says otherwise."""
    return short_flags(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def works(flags):
    """work.json of an epoch with each recipe, and the shapes that the network met."""
    found = {}
    for name, recipe in {"plain": "", **RECIPES}.items():
        shapes = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(step, "network_images", record_shapes(step.network_images, shapes))
            folder = start([*flags, "--epochs", "1", "--name", name, *recipe.split()])
        found[name] = json.loads((folder / "work.json").read_text()), shapes
    return found


def record_shapes(network_images, shapes):
    def recorded(state, batch):
        images = network_images(state, batch)
        shapes.append(tuple(images.shape))
        return images

    return recorded


@pytest.mark.parametrize("name", RECIPES)
def test_each_recipe_trains_on_its_own_batches(works, name):
    work, shapes = works[name]
    assert len(work["losses"]) == len(shapes) == work["work"]["batches"]
    assert np.isfinite(np.array(work["losses"], np.float64)).all()
    plain = works["plain"][0]["work"]
    # The images before they are resized are those of a run at one size.
    assert (work["work"]["batches_sha1"] == plain["batches_sha1"]) == (name == "multi-scale")


def test_network_receives_the_shapes_of_the_recipe(works):
    shapes = {name: found for name, (_, found) in works.items()}
    assert set(shapes["plain"]) == {(4, 3, 64, 64)}
    assert {height for _, _, height, _ in shapes["multi-scale"]} <= {32, 64, 96}
    assert set(shapes["multi-scale"]) != {(4, 3, 64, 64)}
    assert all(height == width for _, _, height, width in shapes["multi-scale"])
    images = {name: work["work"]["train_images"] for name, (work, _) in works.items()}
    assert images["plain"] == 12 and 0 < images["one"] < 12


class Stopped(Exception):
    """Ends a run at its first step."""


def test_quad_loss_counts_four_times(flags, tmp_path):
    seen = []

    def stop(*arguments):
        seen.extend(arguments)
        raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "train_step", stop)
        with pytest.raises(Stopped):
            start([*flags, "--project", str(tmp_path)])
    state, batch, _ = seen
    assert len(batch.sample_indices) == 4
    terms = state.step_loss(state.forward(step.network_images(state, batch)), batch.targets)
    means = sum(float(ops.to_numpy(term)) for term in terms.by_name.values())
    assert float(ops.to_numpy(terms.total)) == pytest.approx(4 * means, rel=1e-5)  # float32


def test_lone_class_gets_a_name(flags, works):
    header = load_checkpoint(folder_of(flags, "one") / "weights" / "last.safetensors").header
    assert header.class_names == ("item",)


INTERRUPTED = [
    "--multi-scale", "--image-weights", "--patience", "2", "--override", "anchors=3",
    "--epochs", "3",
]  # fmt: skip


def test_resuming_multi_scale_with_fitted_anchors_is_exact(flags, tmp_path, monkeypatch):
    # The tiny model finds nothing in so short a time: the figures of its classes are made up.
    made_up = staticmethod(lambda result: (0.9, 0.1, 0.5, 0.0, 0.3 + result.map))
    monkeypatch.setattr(AnchorHead, "class_scores", made_up)
    run = [*flags, *INTERRUPTED, "--project", str(tmp_path)]
    start([*run, "--name", "whole"])
    with pytest.raises(Suspended):
        start(run, StopAt(6))  # after 3 batches, a batch of the validation, and 2 batches
    path = max((tmp_path / "exp" / "weights").glob("state-*"))
    state = load_checkpoint(path).header
    assert (state.epoch, state.batch_number) == (1, 5)
    assert state.progress["scores_before_epoch"] == {"1": [0.9, 0.1, 0.5, 0.0, 0.3]}
    assert state.progress["best_epoch"] == 1
    given = yaml.safe_load(Path(flags[flags.index("--cfg") + 1]).read_text())["anchors"]
    assert [len(level) for level in state.model["anchors"]] == [6] * len(given)
    assert state.model["anchors"] != given  # they were fitted
    start([*run, "--resume"])
    assert_equal_runs(tmp_path / "exp", tmp_path / "whole")
