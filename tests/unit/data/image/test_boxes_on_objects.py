"""Boxes and outlines lie on their objects, however a file is turned and however labelled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.sources.annotations import annotated_images
from duet.utils.data.sources.formats.format import Annotations, FileNotes, ImageLabels, collect
from duet.utils.data.sources.samples import Sample, decode, objects_of
from duet.utils.data.sources.splits import scan_samples
from duet.utils.detect.media.image_file import ImageFile
from tests.unit.data.image.kinds_of_images import turned

SIZE = HEIGHT, WIDTH = 48, 80
RED, GREEN, GRAY = (250, 20, 20), (20, 230, 30), (120, 120, 120)
OBJECTS = {"red": (6, 10, 40, 26), "green": (52, 4, 70, 40)}  # xyxy in the upright image
# Colours do not blur into their neighbours.
SHARP = {
    "JPEG": {"quality": 100, "subsampling": 0},
    "AVIF": {"quality": 100, "subsampling": "4:4:4"},
    "WEBP": {"lossless": True},
}


def upright_scene(size: tuple[int, int] = SIZE) -> np.ndarray:
    image = np.full((*size, 3), GRAY, np.uint8)
    for colour, (left, top, right, bottom) in zip((RED, GREEN), OBJECTS.values(), strict=True):
        image[top:bottom, left:right] = colour
    return image


def as_stored(image: np.ndarray, orientation: int) -> np.ndarray:
    """Return what a camera stores with an orientation, for this image to be seen."""
    if orientation in (2, 4, 5, 7):
        image = np.fliplr(image)
    return np.ascontiguousarray(
        np.rot90(image, {1: 0, 2: 0, 3: 2, 4: 2, 5: 1, 6: 1, 7: -1, 8: -1}[orientation])
    )


def is_of(colour: tuple[int, int, int], image: np.ndarray) -> np.ndarray:
    return (np.abs(image.astype(int) - colour) < 90).all(axis=-1)


def boxes_in(image: np.ndarray) -> dict[str, tuple[int, int, int, int]]:
    """Return where the objects are in an image, found by their colours."""
    found = {}
    for name, colour in (("red", RED), ("green", GREEN)):
        rows, columns = np.nonzero(is_of(colour, image))
        found[name] = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
    return found


def corners(box: tuple[int, int, int, int]) -> np.ndarray:
    left, top, right, bottom = box
    return np.array([(left, top), (right, top), (right, bottom), (left, bottom)], float)


def annotate(path: Path, seen: np.ndarray, scale: int = 1) -> Annotations:
    """Return what a tool writes that shows a file so: a box, and an outline."""
    boxes = boxes_in(seen)
    image = ImageLabels(path, (seen.shape[0] * scale, seen.shape[1] * scale))
    left, top, right, bottom = boxes["red"]
    image.add("red", (left * scale, top * scale, right * scale, bottom * scale))
    image.add_outline("green", corners(boxes["green"]) * scale)
    return collect([image], FileNotes())


def scanned(annotations: Annotations) -> list[Sample]:
    images = annotated_images(annotations, ("red", "green"), Path("all.json"))
    report = scan_samples(images, 2)
    assert report.problems == []
    return report.samples


def check_on_objects(sample: Sample) -> None:
    """Each box holds all pixels of its object in the decoded image, and nothing else."""
    item, image = objects_of(sample), decode(sample)[..., ::-1]
    assert image.shape[:2] == (sample.height, sample.width)
    found = boxes_in(image)
    for index, name in ((0, "red"), (1, "green")):
        (place,) = np.flatnonzero(item.class_index == index)
        np.testing.assert_allclose(item.boxes_xyxy[place], found[name], atol=0.01)
    (place,) = np.flatnonzero(item.class_index == 1)
    outline = item.polygons.outline(place)
    assert {tuple(point) for point in np.rint(outline).astype(int)} == {
        tuple(point) for point in corners(found["green"]).astype(int)
    }


def write(folder: Path, form: str, orientation: int) -> tuple[Path, np.ndarray]:
    """Return a file that shows the scene, and its pixels as they are stored."""
    stored = as_stored(upright_scene(), orientation)
    path = folder / f"{form}{orientation}.bin"
    path.write_bytes(turned(form, orientation, stored, **SHARP.get(form, {})))
    return path, stored


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "AVIF", "WEBP"])
def test_labels_stay_on_objects_as_browsers_show_them(form, orientation, tmp_path):
    """A WebP as it is stored, others upright."""
    path, stored = write(tmp_path, form, orientation)
    seen = stored if form == "WEBP" else upright_scene()
    for scale in (1, 3):
        (sample,) = scanned(annotate(path, seen, scale))
        assert (sample.height, sample.width) == seen.shape[:2]
        check_on_objects(sample)
    (frame,) = ImageFile(path, 10**6).frames()  # as detect.py sees it
    np.testing.assert_array_equal(frame.image, decode(sample)[..., ::-1])


@pytest.mark.parametrize("orientation", [1, 6])
def test_an_image_that_was_labelled_sideways_is_left_out(orientation, tmp_path):
    path, _ = write(tmp_path, "JPEG", orientation)
    annotations = annotate(path, np.rot90(upright_scene()))
    images = annotated_images(annotations, ("red", "green"), Path("all.json"))
    good, _ = write(tmp_path, "PNG", 1)
    images += annotated_images(annotate(good, upright_scene()), ("red", "green"), Path("b.json"))
    (problem,) = scan_samples(images, 2, needs_objects=False).problems
    assert "labelled as an image of 48x80 px, and has 80x48; " in problem
