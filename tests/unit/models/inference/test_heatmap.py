"""Heat maps: the first principal component of a layer's map, over the image."""

import cv2
import numpy as np
import pytest

from duet import load
from duet.backend import autograd, ops
from duet.models.detect.settings import make_detector
from duet.models.detector import images_to_tensor
from duet.models.inference.heatmap import eigen_cam
from duet.models.stored import load_detector
from duet.utils.detect.config import parse_detect_flags
from duet.utils.errors import UserError
from duet.utils.weights.load import load_to_detect, load_weights
from tests.small import (
    noise,
    write_tiny_classifier,
    write_tiny_segmenter,
)

IMAGE = noise(64, 96)


def test_first_component_of_one_pattern_is_the_pattern():
    pattern = np.array([[0.0, 1, 4], [2, 0, 0]])
    channels = np.array([3.0, -0.5, 1])
    maps = channels[:, None, None] * pattern
    np.testing.assert_allclose(eigen_cam(maps), pattern / 4, atol=1e-7)
    np.testing.assert_allclose(eigen_cam(-maps), pattern / 4, atol=1e-7)
    assert eigen_cam(np.zeros((3, 2, 2))).tolist() == [[0, 0], [0, 0]]


def test_eigen_cam_matches_numpy_svd():
    maps = np.random.default_rng(0).normal(size=(5, 4, 6))
    flat = maps.reshape(5, -1)
    first = np.linalg.svd(flat, full_matrices=False)[0][:, 0] @ flat
    first = first if first.max() >= -first.min() else -first
    wanted = np.maximum(first, 0) / first.max()
    np.testing.assert_allclose(eigen_cam(maps).ravel(), wanted, atol=1e-6)


@pytest.mark.parametrize("layer", [True, 1])
def test_result_has_the_heat_map_of_its_layer(weights, layer):
    (result,) = load(weights, device="cpu")(IMAGE, size=96, visualize=layer)
    model = load_detector(load_weights(weights), "cpu")
    with autograd.no_grad():
        pixels = images_to_tensor(IMAGE.transpose(2, 0, 1)[None], "cpu")
        outputs = [ops.to_numpy(x) for x in list(model.run_layers(pixels))[:-1]]
    heat = eigen_cam(outputs[-1 if layer is True else layer][0])
    assert result.heatmap.shape == (64, 96) and result.heatmap.dtype == np.float32
    # Folded BatchNorm rounds otherwise.
    np.testing.assert_allclose(result.heatmap, cv2.resize(heat, (96, 64)), atol=1e-3)
    assert result.plot_heatmap().shape == IMAGE.shape


def test_call_without_visualize_has_no_heat_map(weights):
    (result,) = load(weights, device="cpu")(IMAGE)
    assert result.heatmap is None
    with pytest.raises(UserError, match="call the detector with visualize=True"):
        result.plot_heatmap()


@pytest.mark.parametrize("write", [write_tiny_segmenter, write_tiny_classifier])
def test_masks_and_classes_have_heat_maps(tmp_path, write):
    detector = load(write(tmp_path), device="cpu")
    (result,) = detector.stream([IMAGE], size=64, visualize=True)
    assert result.heatmap.shape == (64, 96) and result.heatmap.max() > 0.5


@pytest.mark.parametrize(
    ("layer", "message"),
    [("4", "--visualize 4; the model has layers 0 to 3 before its head"), ("-2", "at least -1")],
)
def test_absent_layer_is_refused(weights, layer, message):
    with pytest.raises(UserError, match=message):
        config = parse_detect_flags(["--weights", str(weights), "--visualize", layer])
        make_detector(config, [load_to_detect(str(weights))])


def test_several_weights_cannot_be_visualized(weights):
    flags = ["--weights", str(weights), str(weights), "--visualize"]
    with pytest.raises(UserError, match="exported files keep only their outputs; give one"):
        make_detector(parse_detect_flags(flags), [load_to_detect(str(weights))] * 2)
