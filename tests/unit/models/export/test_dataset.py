"""The images of --data choose the ranges of --int8, and say what a file may lose."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from duet.models.export.dataset import MOST_IMAGES, Score, calibration_images, fault_of_score
from duet.models.export.verify import PHOTOS, chosen_images
from duet.utils.data.sources.samples import Sample
from duet.utils.export.metadata import MASKS, Metadata

METADATA = Metadata(class_names=("a",), stride=32, image_size=(32, 64))


def samples(folder: Path, number: int, height: int = 32, width: int = 64) -> list[Sample]:
    """Images of one colour each: (index, 0, 255)."""
    found = []
    for index in range(number):
        path = folder / f"{index}.png"
        Image.new("RGB", (width, height), (index, 0, 255)).save(path)
        boxes = np.zeros((0, 4), np.float32)
        found.append(Sample(path, height, width, np.zeros(0, np.int64), boxes))
    return found


def test_calibration_images_are_padded_and_in_unit_range(tmp_path: Path) -> None:
    (image,) = calibration_images(samples(tmp_path, 1, height=32, width=32), METADATA)()
    assert image.shape == (1, 3, 32, 64) and image.dtype == np.float32
    assert image[0, :, 0, 0].tolist() == pytest.approx([114 / 255] * 3)  # the border
    assert image[0, :, 16, 32].tolist() == [0, 0, 1]


def test_calibration_images_are_evenly_chosen(tmp_path: Path) -> None:
    images = list(calibration_images(samples(tmp_path, 2 * MOST_IMAGES - 1), METADATA)())
    colours = [round(float(image[0, 0, 0, 0] * 255)) for image in images]
    assert colours == list(range(0, 2 * MOST_IMAGES, 2))


def test_last_batch_is_filled_with_its_last_image(tmp_path: Path) -> None:
    metadata = Metadata(class_names=("a",), stride=32, image_size=(32, 64), batch_size=3)
    first, last = calibration_images(samples(tmp_path, 5), metadata)()
    assert first.shape == last.shape == (3, 3, 32, 64)
    colours = [round(float(image[0, 0, 0] * 255)) for image in (*first, *last)]
    assert colours == [0, 1, 2, 3, 4, 4]  # with its own last image


def test_dynamic_graph_is_calibrated_one_image_at_a_time(tmp_path: Path) -> None:
    """Calibration holds all maps of a batch, and nothing is to be filled."""
    metadata = Metadata(("a",), 32, image_size=(32, 64), batch_size=2, dynamic=True)
    images = list(calibration_images(samples(tmp_path, 3), metadata)())
    assert [image.shape for image in images] == [(1, 3, 32, 64)] * 3


def of(fitness: float) -> Score:
    return Score("w.onnx", {}, fitness, 1.0)


@pytest.mark.parametrize(
    ("precision", "output", "model", "accepted", "refused"),
    [
        ("float32", "rows", 0.4, 0.3992, 0.3988),
        ("float16", "rows", 0.4, 0.396, 0.394),
        ("int8", "rows", 0.4, 0.351, 0.349),
        ("float32", MASKS, 0.4, 0.38, 0.378),  # cut coarsely
    ],
)
def test_accepted_fitness_loss_is_small(precision, output, model, accepted, refused):
    metadata = dataclasses.replace(METADATA, precision=precision, output=output)
    assert fault_of_score(of(accepted), of(model), metadata) == ""
    fault = fault_of_score(of(refused), of(model), metadata)
    assert f"fitness {refused:.4f} instead of {model:.4f}; accepted: at most" in fault


def test_default_check_images_have_known_licences():
    images = chosen_images(None)
    photos = sorted(PHOTOS.glob("*.jpg"))
    assert len(images) == 8 and len(photos) == 4
    assert all(image.dtype == np.uint8 and image.shape[2] == 3 for image in images)
    cat = images[[path.name for path in photos].index("cat.jpg")]
    assert (
        cat.shape == (300, 451, 3) and cat[..., 0].mean() > cat[..., 2].mean() + 20
    )  # ginger: RGB
    about = (PHOTOS.parent / "photographs.md").read_text()
    for path in photos:
        (row,) = (line for line in about.splitlines() if path.name in line)
        assert row.rstrip(" |").endswith(("CC0", "public domain: no known copyright restrictions"))
    assert sum(path.stat().st_size for path in photos) < 300_000
