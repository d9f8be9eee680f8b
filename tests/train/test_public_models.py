"""Models of other levels, blocks, activations and channels: trained, resumed, and at work."""

import numpy as np
import pytest
import yaml

import duet
from duet.backend import ops
from duet.models.detector import grey_of
from duet.models.stored import detector_of_weights
from duet.utils.data.shapes.dataset import ShapesConfig, draw_dataset
from duet.utils.errors import UserError
from duet.utils.processes.suspend import Suspended
from duet.utils.project import PROJECT
from duet.utils.weights.load import load_weights
from tests.train.short_runs import StopAt, assert_equal_runs, short_flags, start

# A block of each kind, of strides to 64, on grey images.
EVERY_KIND = """
nc: 5
ch: 1
act: nn.LeakyReLU(0.1)
depth_multiple: 1.0
width_multiple: 1.0
anchors: [[8, 9, 14, 20], [24, 18, 30, 40], [40, 30, 60, 60]]
backbone:
  - [-1, 1, Focus, [8, 3]]
  - [-1, 1, GhostConv, [8, 3, 2]]
  - [-1, 1, C3Ghost, [16]]
  - [-1, 1, nn.MaxPool2d, [2, 2]]
  - [-1, 2, Bottleneck, [16]]        # 4, stride 8
  - [-1, 1, DWConv, [16, 3, 2]]
  - [-1, 1, SPP, [16, [3, 5]]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 2, C3TR, [16]]              # 8, stride 32
  - [-1, 1, nn.ZeroPad2d, [[0, 1, 0, 1]]]
  - [-1, 1, nn.MaxPool2d, [2, 1]]
  - [-1, 1, Conv, [16, 3, 2]]        # 11, stride 64
head:
  - [[4, 8, 11], 1, Detect, [nc, anchors]]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    draw_dataset(folder / "shapes", ShapesConfig(num_train=4, num_val=2, image_side=64))
    (folder / "kinds.yaml").write_text(EVERY_KIND)
    return folder


def train_on(folder, *flags, stop=None):
    """Train on the dataset of a folder."""
    data, cfg = folder / "shapes" / "shapes.yaml", folder / "kinds.yaml"
    start(short_flags(folder, *flags, data=data, cfg=cfg), stop)


def narrow(folder, name):
    """Write a public model, its width and depth cut down."""
    document = yaml.safe_load((PROJECT / "models" / "hub" / f"{name}.yaml").read_text())
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**document, "width_multiple": 0.03, "depth_multiple": 0.1}))
    return path


@pytest.mark.parametrize(
    ("name", "image_size", "strides"),
    [
        ("yolov5-p6", 128, (8, 16, 32, 64)),
        ("yolov5-p2", 64, (4, 8, 16, 32)),
        ("yolov5s-ghost", 64, (8, 16, 32)),
    ],
)
def test_public_model_trains_validates_and_detects(folder, name, image_size, strides):
    flags = ("--cfg", narrow(folder, name), "--batch", 4, "--epochs", 1, "--name", name)
    train_on(folder, *flags, "--img", image_size)
    weights = folder / name / "weights" / "last.safetensors"
    model = duet.load(weights, device="cpu")
    assert model.stride == max(strides)
    stored = load_weights(str(weights))
    assert detector_of_weights(stored).head.strides == strides
    anchors = stored.header.model["anchors"]
    assert np.shape(anchors) == (len(strides), 6) and np.min(anchors) > 0  # they were fitted
    row = (folder / name / "results.csv").read_text().splitlines()[1].split(",")
    assert np.isfinite([float(value) for value in row[1:7]]).all()
    (found,) = model(np.zeros((50, 70, 3), np.uint8), size=image_size, conf=0.0)
    assert found.boxes_xyxy.shape[1] == 4


@pytest.mark.parametrize(
    ("image_size", "message"),
    [
        (96, "--img 96 is not a multiple of the model's stride 64; use 128"),
        (64, "equals the model's stride 64: a single cell"),
    ],
)
def test_sizes_too_small_for_the_strides_are_refused_first(folder, image_size, message, caplog):
    caplog.set_level("INFO")
    with pytest.raises(UserError, match=message):
        train_on(
            folder, "--cfg", narrow(folder, "yolov5-p6"), "--img", image_size, "--name", "none"
        )
    assert not (folder / "none").exists()
    assert "anchors:" not in caplog.text


def test_every_block_kind_resumes_bit_for_bit_on_grey(folder):
    flags = ("--img", 128, "--batch", 2, "--epochs", 1)
    train_on(folder, *flags, "--name", "whole")
    cut = (*flags, "--name", "cut", "--resume", "auto")
    with pytest.raises(Suspended):
        train_on(folder, *cut, stop=StopAt(1))
    train_on(folder, *cut)
    assert_equal_runs(folder / "cut", folder / "whole")
    weights = load_weights(str(folder / "cut" / "weights" / "last.safetensors"))
    assert weights.ema["model.0.conv.conv.weight"].shape == (8, 4, 3, 3)
    assert (weights.header.model["ch"], weights.header.model["act"]) == (1, "nn.LeakyReLU(0.1)")


def test_grey_is_the_luma_of_the_colours():
    images = np.random.default_rng(0).random((2, 3, 4, 6)).astype(np.float32)
    found = ops.to_numpy(grey_of(ops.tensor(images)))
    wanted = np.einsum("bchw,c->bhw", images, [0.299, 0.587, 0.114])[:, None]  # ITU-R BT.601
    assert found.shape == (2, 1, 4, 6)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)  # three float32 products
