"""Anchors fitted at the start of a run are in all its weights."""

import numpy as np
import yaml

from duet.backend import ops
from duet.models.stored import detector_of_weights
from duet.utils.data.anchors import label_sizes, measure_fit
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.weights.checkpoint import load_checkpoint
from tests.train.short_runs import short_flags, start

FAR_TOO_LARGE = [[400, 500, 600, 300, 500, 500], [700, 900, 800, 800, 900, 700]]


def anchors_of(folder, name):
    """The anchors that the head of a run's weights has, (levels, A, 2) pixels."""
    weights = load_checkpoint(folder / "weights" / f"{name}.safetensors")
    head = detector_of_weights(weights).head
    in_pixels = ops.to_numpy(head.anchors) * np.reshape(head.strides, (-1, 1, 1))
    listed = np.reshape(weights.header.model["anchors"], in_pixels.shape)
    np.testing.assert_allclose(in_pixels, listed, rtol=1e-6)  # float32
    return in_pixels


def test_fitted_anchors_are_in_weights_and_description(tmp_path):
    flags = short_flags(tmp_path, "--epochs", 1)
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "anchors": FAR_TOO_LARGE}))
    start(flags)
    sizes = label_sizes(load_split(load_dataset(flags[1]), "train"), 64)
    for name in ("last", "best"):
        found = anchors_of(tmp_path / "exp", name)
        assert found.shape == (2, 3, 2)
        assert measure_fit(sizes, found.reshape(-1, 2), 4).best_possible_recall == 1
    assert measure_fit(sizes, np.reshape(FAR_TOO_LARGE, (-1, 2)), 4).best_possible_recall < 0.5
