"""Transforms of the package Albumentations: which are read, and what they do to a sample."""

import json
import subprocess
import sys

import cv2
import numpy as np
import pytest

from duet.utils.cli.train_config import parse_train_flags
from duet.utils.data.augment import transforms
from duet.utils.data.augment.transforms import require_transforms, transform
from duet.utils.data.image.decoding import LabelledImage
from duet.utils.errors import UserError
from duet.utils.transform_list import KNOWN, read_transforms
from tests.outlines import make_polygons

SIZE = 64, 64
NOISE = np.random.Generator(np.random.Philox(0)).random((64, 64, 3))
PIXELS = {"Blur": {"p": 0.5}, "RandomBrightnessContrast": {"p": 0.5}, "GaussNoise": {"p": 0.5}}
SPATIAL = {"HorizontalFlip": {"p": 0.5}, "Affine": {"p": 0.5, "rotate": [-20, 20]}}


def item(boxes=((8, 8, 40, 32),)) -> LabelledImage:
    pixels = np.array(boxes, np.float64).reshape(-1, 4)
    return LabelledImage((NOISE * 255).astype(np.uint8), np.arange(len(pixels)) + 3, pixels)


def read(tmp_path, text: str) -> str:
    path = tmp_path / "transforms.yaml"
    path.write_text(text, encoding="utf-8")
    return read_transforms(str(path))


def test_no_file_is_no_transform_and_the_flag_alone_is_the_public_set():
    assert parse_train_flags([]).albumentations == ""
    text = parse_train_flags(["--albumentations"]).albumentations
    public = {"Blur": 0.01, "MedianBlur": 0.01, "ToGray": 0.01, "CLAHE": 0.01}
    assert json.loads(text) == {name: {"p": p} for name, p in public.items()}
    assert parse_train_flags(["--albumentations", "public.yaml"]).albumentations == text
    require_transforms(text, SIZE)


def test_a_file_names_transforms_in_order_with_their_arguments(tmp_path):
    text = read(tmp_path, "ToGray:\nBlur: {p: 0.5, blur_limit: [3, 7]}\n")
    assert text == '{"ToGray": {}, "Blur": {"p": 0.5, "blur_limit": [3, 7]}}'
    require_transforms(text, SIZE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Blurr: {p: 1}", "'Blurr' is not an accepted transform; did you mean Blur?"),
        ("os.system: {}", "'os.system' is not an accepted transform; known: AdditiveNoise, "),
        ("Lambda: {}", "'Lambda' is not an accepted transform"),
        ("TextImage: {font_path: x}", "'TextImage' is not an accepted transform"),
        ("Compose: {}", "'Compose' is not an accepted transform"),
        ("__builtins__: {}", "'__builtins__' is not an accepted transform"),
        ("7: {}", "7 is not an accepted transform"),
        ("Blur: 0.5", "Blur: 0.5; its arguments by name are needed: {p: 0.5}"),
        ("Blur: [0.5]", "Blur: [0.5]; its arguments by name"),
        ("Blur: {'p q': 1}", "its arguments by name"),
        ("Blur: {3: 1}", "its arguments by name"),
        ("{}", "no transform is named"),
        ("- Blur", "a mapping of names to values is needed"),
        ("Blur: {p: 1}\nBlur: {p: 0}", "the key 'Blur' appears twice"),
        ("Blur: !!python/object:os.system {}", "the tag"),
    ],
)
def test_what_is_no_list_of_transforms_is_refused(tmp_path, text, message):
    with pytest.raises(UserError) as error:
        read(tmp_path, text)
    assert message in str(error.value)
    assert len(str(error.value)) < 2000


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"Blur": {"p": 7}}, "Blur: {'p': 7} is not accepted: p: Input should be less than or"),
        ({"Blur": {"radius": 3}}, r"not accepted: Argument\(s\) 'radius' are not valid"),
        ({"Resize": {}}, "Resize: {} is not accepted: height: Field required"),
        ({"Affine": {"scale": [[1]]}}, "Affine: .* is not accepted"),
        ({"CropAndPad": {}}, "CropAndPad: {} is not accepted: Value error, Both px and percent"),
        ({"RandomCrop": {"height": 32, "width": 48}}, "makes 48x32 uint8 of a training image of "),
        ({"Crop": {"x_max": 80, "y_max": 64}}, "fails on an image of 64x64: Values for crop "),
    ],
)
def test_what_a_transform_cannot_do_is_told_before_training(document, message):
    with pytest.raises(UserError, match=message):
        require_transforms(json.dumps(document), SIZE)


def test_transforms_that_do_not_follow_their_seed_are_refused(monkeypatch):
    random = np.random.default_rng(0)

    def unseeded(given, text, seed):
        return given._replace(image=given.image + random.integers(2, dtype=np.uint8))

    monkeypatch.setattr(transforms, "transform", unseeded)
    with pytest.raises(UserError, match="these transforms do not follow their seed, .*: Blur;"):
        require_transforms('{"Blur": {}}', SIZE)


@pytest.mark.parametrize("text", ["[]", "x", '{"Lambda": {}}', '{"Blur": 1}', '"Blur"'])
def test_the_text_of_a_state_from_elsewhere_is_checked_too(text):
    with pytest.raises(UserError, match="--albumentations"):
        transform(item(), text, 0)


def test_every_known_transform_is_one_of_the_package_or_missing_by_name():
    package = transforms.import_optional("albumentations", "a test")
    base = package.BasicTransform
    assert {name for name in KNOWN if not issubclass(getattr(package, name), base)} == set()


def test_an_absent_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "albumentations", None)
    transforms._build.cache_clear()
    with pytest.raises(UserError, match=r"--albumentations needs albumentations: pip install albu"):
        require_transforms('{"Blur": {}}', SIZE)


@pytest.mark.parametrize("document", [PIXELS, SPATIAL], ids=["pixels", "spatial"])
def test_a_result_is_a_function_of_the_seed(document):
    text = json.dumps(document)
    first = [transform(item(), text, seed) for seed in range(20)]
    np.random.random()  # a state that a transform might use
    second = [transform(item(), text, seed) for seed in reversed(range(20))][::-1]
    for one, other in zip(first, second, strict=True):
        assert all(map(np.array_equal, one, other))
    assert len({one.image.tobytes() for one in first}) > 3


def test_transforms_are_drawn_apart_from_each_other():
    """A state for each, of one seed, would blur exactly what it mirrors."""
    text = json.dumps({"HorizontalFlip": {"p": 0.5}, "InvertImg": {"p": 0.5}})
    given = item()
    given.image[:] //= 4  # dark
    mirrored, inverted = [], []
    for seed in range(60):
        found = transform(given, text, seed)
        inverted.append(bool(found.image.mean() > 127))
        mirrored.append(bool(found.boxes_xyxy[0, 0] != given.boxes_xyxy[0, 0]))
    pairs = set(zip(mirrored, inverted, strict=True))
    assert pairs == {(False, False), (False, True), (True, False), (True, True)}


def test_the_channels_are_those_that_the_package_expects():
    """A weight of 0.299 is that of red (ITU-R BT.601), which is the last channel of BGR."""
    red = np.zeros((8, 8, 3), np.uint8)
    red[..., 2] = 200
    none = np.zeros(0, np.int64), np.zeros((0, 4))
    found = transform(LabelledImage(red, *none), '{"ToGray": {"p": 1}}', 0)
    assert (found.image == round(0.299 * 200)).all()


def test_boxes_go_with_their_objects():
    image = np.zeros((64, 64, 3), np.uint8)
    image[8:32, 8:40] = 255
    given = LabelledImage(image, np.array([5]), np.array([[8.0, 8, 40, 32]]))
    text = json.dumps(
        {"HorizontalFlip": {"p": 0.5}, "RandomRotate90": {"p": 1}, "Affine": {"scale": [0.6, 1.4]}}
    )
    for seed in range(30):
        found = transform(given, text, seed)
        rows, columns = np.nonzero(found.image[..., 0] > 127)
        seen = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert found.class_index.tolist() == [5]
        # A blended pixel at each edge, of at most 1.4.
        np.testing.assert_allclose(found.boxes_xyxy[0], seen, atol=1.5)


OFFLINE = """
import socket, sys
def refuse(*arguments, **named): raise AssertionError(f"network: {arguments}")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from duet.utils.data.augment.transforms import require_transforms
from duet.utils.transform_list import PUBLIC_TRANSFORMS, read_transforms
require_transforms(read_transforms(str(PUBLIC_TRANSFORMS)), (64, 64))
assert "torch" not in sys.modules and "oneflow" not in sys.modules
"""


def test_nothing_is_asked_from_the_network_and_no_framework_imported():
    command = [sys.executable, "-W", "error", "-c", OFFLINE]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


TURNED = {
    "Affine": {"p": 1, "rotate": [-30, 30], "scale": [0.7, 1.3]},
    "RandomRotate90": {"p": 1},
    "Perspective": {"p": 0.5},
}
BENT = {"OpticalDistortion": {"p": 1, "distort_limit": [0.5, 0.6]}}
CROPPED = {"RandomResizedCrop": {"size": [64, 64], "p": 1, "scale": [0.3, 0.6]}}


def with_outlines() -> LabelledImage:
    """Return a white corner of three squares of an image, and an object with a box alone."""
    outline = np.array([(10, 10), (54, 10), (54, 30), (30, 30), (30, 54), (10, 54)], np.float64)
    image = np.zeros((64, 64, 3), np.uint8)
    image[10:54, 10:30] = image[10:30, 10:54] = 255
    boxes = np.array([[30, 30, 54, 54], [10, 10, 54, 54]], np.float64)
    return LabelledImage(image, np.array([7, 5]), boxes, make_polygons([[], outline]))


@pytest.mark.parametrize("document", [TURNED, BENT, CROPPED], ids=["turned", "bent", "cropped"])
def test_outlines_go_with_their_objects(document):
    overlaps = []
    for seed in range(20):
        found = transform(with_outlines(), json.dumps(document), seed)
        assert len(found.polygons) == len(found.class_index) == len(found.boxes_xyxy)
        for index in np.flatnonzero(found.class_index == 5).tolist():
            outline = found.polygons.outline(index)
            assert outline.min() >= -2 and outline.max() <= 66
            mask = np.zeros((8 * 64, 8 * 64), np.uint8)
            cv2.fillPoly(mask, [np.rint(outline * 8 - 0.5).astype(np.int32)], (255,))
            filled = cv2.resize(mask, (64, 64), interpolation=cv2.INTER_AREA) > 127
            white = found.image[..., 0] > 127
            overlaps.append((filled & white).sum() / (filled | white).sum())
        assert (found.polygons.num_points[found.class_index == 7] == 0).all()
    # Measured: 0.93 of bent edges, whose corners alone are moved, 0.94 of turned ones, as the
    # package moves points half a pixel otherwise than pixels, 0.997 of cropped ones.
    assert len(overlaps) > 15 and np.median(overlaps) > 0.92


@pytest.mark.parametrize("document", [TURNED, BENT, CROPPED], ids=["turned", "bent", "cropped"])
def test_boxes_that_fit_outlines_end_where_these_do(document):
    """Within the image; an object without an outline keeps the box that the package moved."""
    for seed in range(20):
        loose = transform(with_outlines(), json.dumps(document), seed)
        found = transform(with_outlines(), json.dumps(document), seed, fits_outlines=True)
        np.testing.assert_array_equal(found.image, loose.image)
        assert found.class_index.tolist() == loose.class_index.tolist()
        assert len(found.polygons) == len(found.class_index)
        for index, label in enumerate(found.class_index.tolist()):
            expected = loose.boxes_xyxy[index]
            if label == 5:
                outline = found.polygons.outline(index)
                expected = [*outline.min(axis=0).clip(0, 64), *outline.max(axis=0).clip(0, 64)]
            # Float64: ends of edges are computed from where an edge is cut.
            np.testing.assert_allclose(found.boxes_xyxy[index], expected, atol=1e-9)
