"""Which --img a model takes, in training and in validation."""

import pytest

from duet.models.detector import Detector, require_image_size
from duet.models.graph import parse_model, read_model_yaml
from duet.utils.errors import UserError


@pytest.mark.parametrize(
    ("image_size", "message"),
    [
        (33, "--img 33 is not a multiple of the model's stride 32; use 64"),
        (63, "--img 63 is not a multiple of the model's stride 32; use 64"),
        (650, "--img 650 is not a multiple of the model's stride 32; use 672"),
    ],
)
@pytest.mark.parametrize("trains", [True, False])
def test_other_than_multiples_of_the_stride_are_refused(image_size, message, trains):
    with pytest.raises(UserError, match=message):
        require_image_size(image_size, 32, trains)
    require_image_size(int(message.split()[-1]), 32, trains)


@pytest.mark.parametrize("stride", [32, 64])
def test_a_single_cell_is_too_few_to_train_on_and_enough_to_validate(stride):
    with pytest.raises(UserError, match=f"--img {stride} .*BatchNorm.*; use {2 * stride}"):
        require_image_size(stride, stride, trains=True)
    require_image_size(stride, stride, trains=False)
    require_image_size(2 * stride, stride, trains=True)


def test_maps_that_cannot_fit_into_memory_are_refused(monkeypatch):
    """YOLOv5n's first map is its largest: 16 channels, half as high and wide as the image."""
    model = Detector(read_model_yaml("models/yolov5n.yaml", 3))
    largest = 4 * 2 * 16 * 32 * 48  # bytes, of two images
    for free, trains, refused in (
        (largest, False, False),
        (largest - 1, False, True),
        (2 * largest, True, True),
        (10 * largest, True, False),
    ):
        monkeypatch.setattr("duet.utils.memory.free_memory", lambda free=free: free)
        if not refused:
            model.require_memory((2, 3, 64, 96), trains)
            continue
        with pytest.raises(UserError, match="maps of 2 images of 96 x 64 px .* smaller --img"):
            model.require_memory((2, 3, 64, 96), trains)


def test_attention_that_cannot_fit_into_memory_is_refused(monkeypatch):
    """C3TR at stride 2 has four heads, each with a number for each pair of its 24 x 32 cells."""
    document = {
        "nc": 1, "depth_multiple": 1.0, "width_multiple": 1.0, "anchors": 1,
        "backbone": [[-1, 1, "Conv", [8, 3, 2]], [-1, 1, "C3TR", [8]]],
        "head": [[-1, 1, "Detect", ["nc", "anchors"]]],
    }  # fmt: skip
    model = Detector(parse_model(document))
    pairs = 4 * 2 * 4 * (24 * 32) ** 2  # bytes, of two images
    for free, refused in ((pairs, False), (pairs - 1, True)):
        monkeypatch.setattr("duet.utils.memory.free_memory", lambda free=free: free)
        if refused:
            with pytest.raises(UserError, match="smaller --img"):
                model.require_memory((2, 3, 48, 64), trains=False)
        else:
            model.require_memory((2, 3, 48, 64), trains=False)
