"""COCO's run lengths, and masks and objects of several parts as one outline; by pycocotools."""

import tracemalloc

import numpy as np
import pytest
from pycocotools import mask as pycocotools_mask

from duet.utils.data.masks.runs import (
    Window,
    areas,
    from_text,
    iou,
    mask_of_runs,
    outline_of_runs,
    read_runs,
    runs_of_mask,
    runs_of_polygons,
    runs_of_window,
    to_text,
    whole_outline,
)
from duet.utils.geometry.boxes import join_parts
from duet.utils.geometry.detections import Ragged
from tests.environments import shared_path

# What pycocotools decodes warns of NumPy 2's keyword `copy`.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")

KINDS = ("far outside", "whole numbers", "inside", "on the border", "tiny", "fifths of pixels")


def draw_outline(random: np.random.Generator, kind: str, size_wh: np.ndarray) -> np.ndarray:
    """Points in any order: most outlines of more than four cross themselves."""
    shape = (int(random.integers(3, 12)), 2)
    if kind == "far outside":
        return random.uniform(-3, 4, shape) * size_wh
    if kind == "whole numbers":
        return random.integers(-3, 60, shape).astype(np.float64)
    if kind == "inside":
        return random.random(shape) * size_wh
    if kind == "on the border":
        return random.uniform(-0.5, 1.5, shape).clip(0, 1) * size_wh
    if kind == "tiny":
        return random.random(shape) * 2 + random.random(2) * size_wh
    return np.round(random.uniform(-0.2, 1.2, shape) * size_wh * 5) / 5 + random.choice([0, 0.1])


def of_pycocotools(outlines: list[np.ndarray], size: tuple[int, int]) -> dict:
    flat = [outline.reshape(-1).tolist() for outline in outlines]
    return pycocotools_mask.merge(pycocotools_mask.frPyObjects(flat, *size))


@pytest.mark.parametrize("kind", KINDS)
def test_outline_runs_match_pycocotools(kind):
    random = np.random.Generator(np.random.Philox(KINDS.index(kind)))
    for _ in range(500):
        size = tuple(random.integers(1, 60, 2).tolist())
        size_wh = np.array(size[::-1])
        outlines = [draw_outline(random, kind, size_wh) for _ in range(random.integers(1, 4))]
        expected = of_pycocotools(outlines, size)
        found = runs_of_polygons(outlines, size)
        assert found.dtype == np.uint32
        assert to_text(found).encode() == expected["counts"]


def test_empty_outlines_give_empty_runs():
    for outlines in ([], [np.zeros((0, 2))], [np.full((3, 2), 2.0)], [np.full((4, 2), -50.0)]):
        assert runs_of_polygons(outlines, (6, 7)).tolist() == [42]


@pytest.mark.parametrize("corner", [np.nan, np.inf, -np.inf, 1e300, 1e7])
def test_outlines_beyond_pycocotools_are_refused_first(monkeypatch, corner):
    monkeypatch.setattr(pycocotools_mask, "frPyObjects", None)
    for point in ((corner, 1), (1, corner)):
        with pytest.raises(ValueError, match="an outline of .* px; at most 8,388,608 px"):
            runs_of_polygons([np.array([(0, 0), point, (3, 5)])], (6, 7))
    # pycocotools takes four numbers for a box.
    assert runs_of_polygons([np.array([(1, 1), (5, 5)])], (6, 7)).tolist() == [42]


@pytest.mark.parametrize("place", [1e6, 1e9, 1e10, 1e300])
def test_outline_far_outside_is_empty(place):
    triangle = np.array([(0, 0), (5, 0), (0, 5)])
    for offset in ((place, 0), (0, place), (-place, 0), (0, -place)):
        assert runs_of_polygons([triangle + offset], (6, 7)).tolist() == [42]


def draw_mask(number: int) -> np.ndarray:
    """Return noise, something large, nothing, or everything."""
    random = np.random.Generator(np.random.Philox(number))
    size = random.integers(1, 30, 2)
    if number % 2:
        return random.random(size) < random.choice([0, 0.05, 0.5, 1])
    y, x = np.mgrid[: size[0], : size[1]]
    return (abs(x - size[1] * random.random()) < 8) & (abs(y - size[0] * random.random()) < 6)


MASKS = [draw_mask(number) for number in range(120)]


@pytest.mark.parametrize("mask", MASKS[:60], ids=str)
def test_mask_runs_match_pycocotools(mask):
    coded = pycocotools_mask.encode(np.asfortranarray(mask, np.uint8))
    runs = runs_of_mask(mask)
    assert to_text(runs).encode() == coded["counts"]
    size = areas(Ragged.of([runs], np.uint32)).tolist()
    assert size == [pycocotools_mask.area(coded)] == [mask.sum()]
    np.testing.assert_array_equal(mask_of_runs(runs, mask.shape), mask)
    np.testing.assert_array_equal(from_text(coded["counts"].decode()), runs)


def test_window_runs_match_the_surrounding_mask():
    """Some are as high as the mask: there one column's object may go on in the next one."""
    random = np.random.Generator(np.random.Philox(1))
    size = (9, 12)
    windows = []
    for number in range(200):
        shape = random.integers(0, [10, 13])
        top, left = random.integers(0, np.array(size) - shape + 1).tolist()
        pixels = random.random(shape) < (0.5, 1, 0, 0.9)[number % 4]
        windows.append(Window(top, left, pixels))
    found = Ragged.of([runs_of_window(window, size) for window in windows], np.uint32)
    assert found.values.dtype == np.uint32
    assert areas(found).tolist() == [window.pixels.sum() for window in windows]
    for (top, left, pixels), runs in zip(windows, found.rows(), strict=True):
        whole = np.zeros(size, np.uint8, order="F")
        whole[top:, left:][: pixels.shape[0], : pixels.shape[1]] = pixels
        assert to_text(runs).encode() == pycocotools_mask.encode(whole)["counts"]


def shapes_of(number: int, count: int, size: tuple[int, int]) -> list[np.ndarray]:
    random = np.random.Generator(np.random.Philox(number))
    outlines = [random.random((random.integers(3, 9), 2)) * size[::-1] for _ in range(count)]
    scales = random.choice([0, 0.2, 1], count)
    return [runs_of_polygons([o * s], size) for o, s in zip(outlines, scales, strict=True)]


@pytest.mark.parametrize("crowds", ["none", "some", "all"])
def test_overlaps_match_pixel_counts(crowds):
    for number in range(40):
        size = (30 + number, 90 - number)
        found, truth = shapes_of(number, number % 7, size), shapes_of(100 + number, 9, size)
        is_crowd = np.arange(9) % 2 == 0 if crowds == "some" else np.full(9, crowds == "all")
        result = iou(Ragged.of(found, np.uint32), Ragged.of(truth, np.uint32), is_crowd)
        assert (result.shape, result.dtype) == ((len(found), 9), np.float64)
        for row, one in enumerate(found):
            for column, other in enumerate(truth):
                mine, theirs = (mask_of_runs(runs, size) for runs in (one, other))
                whole = mine if is_crowd[column] else mine | theirs
                expected = (mine & theirs).sum() / max(whole.sum(), 1)
                assert result[row, column] == expected
    assert result.any()


def test_overlaps_with_nothing_or_empty_masks_are_zero():
    nothing, empty = Ragged.of([], np.uint32), Ragged.of([np.array([20])], np.uint32)
    assert iou(nothing, empty).shape == (0, 1) and iou(empty, nothing).shape == (1, 0)
    full = Ragged.of([np.array([0, 20]), np.array([0, 5, 0, 5, 10])], np.uint32)
    assert iou(full, empty).tolist() == [[0], [0]] and iou(empty, full).tolist() == [[0, 0]]
    whole, half = np.array([0, 20]), np.array([0, 5, 0, 5, 10])  # with an empty run
    both = Ragged.of([whole, half], np.uint32)
    assert iou(both, Ragged.of([whole], np.uint32)).tolist() == [[1], [0.5]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, "no text form") for text in ("", "0/", "0\u00e9", "0\ud800", "0\x00", "0P")),
        ("oooooooooo0", "of too many characters"),
        ("O", "below 0 or too large"),  # -1
        ("00000O", "below 0 or too large"),  # the third last number and -1
        ("oooooo7", "below 0 or too large"),  # 2**33 - 1
        ("0" + "oooooo3" * 100_003, "below 0 or too large"),  # sums of differences
    ],
)
def test_malformed_run_text_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        from_text(text)


def test_largest_numbers_survive_run_text():
    numbers = np.array([0, 2**32 - 1, 1, 0, 2**32 - 1, 2**31, 0, 0], np.uint32)
    np.testing.assert_array_equal(from_text(to_text(numbers)), numbers)


@pytest.mark.parametrize("runs", [[19], [21], [0, 2**32 - 1] * 3, [], [2**32 - 1] * 5])
def test_runs_of_another_size_are_refused_before_allocation(runs):
    tracemalloc.start()
    with pytest.raises(ValueError, match="runs over .* pixels; 5x4 are needed"):
        mask_of_runs(np.array(runs, np.uint32), (4, 5))
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def largest_outline(mask: np.ndarray) -> np.ndarray:
    return outline_of_runs(runs_of_mask(mask), mask.shape)


def test_largest_outlines_match_public_values():
    with np.load(shared_path("golden/segment/masks_to_polygons.npz")) as stored:
        for number, mask in enumerate(stored["masks"] > 0):
            found = largest_outline(mask)
            assert found.dtype == np.float32 and found.ndim == 2
            np.testing.assert_array_equal(found, stored[f"largest_{number}"])


def test_transposed_mask_gives_the_same_outline():
    mask = np.zeros((4, 9), bool)
    mask[1, 2:7] = True
    np.testing.assert_array_equal(largest_outline(mask.T.copy().T), largest_outline(mask))


SQUARE = np.array([[0, 0], [4, 0], [4, 4], [0, 4]], np.float64)


def covered(outline: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return which pixels have their centre within an outline, by the even-odd rule."""
    y, x = np.mgrid[: size[0], : size[1]] + 0.5
    inside = np.zeros(size, bool)
    for (x0, y0), (x1, y1) in zip(outline, np.roll(outline, -1, axis=0), strict=True):
        if y0 != y1:
            inside ^= ((y0 > y) != (y1 > y)) & (x < x0 + (y - y0) / (y1 - y0) * (x1 - x0))
    return inside


def mask_outline(segmentation: dict[str, object]) -> np.ndarray:
    return whole_outline(*read_runs(segmentation))


def as_text(mask: np.ndarray) -> dict[str, object]:
    coded = pycocotools_mask.encode(np.asfortranarray(mask, np.uint8))
    return {"size": list(mask.shape), "counts": coded["counts"].decode()}


def as_numbers(mask: np.ndarray) -> dict[str, object]:
    pixels = np.concatenate(([0], mask.T.ravel().astype(np.int64)))
    changes = np.flatnonzero(np.diff(pixels))
    counts = np.diff(np.concatenate(([0], changes, [mask.size])))
    return {"size": list(mask.shape), "counts": counts.tolist()}


@pytest.mark.parametrize("coded", [as_text, as_numbers])
def test_outline_covers_exactly_its_mask(coded):
    for mask in MASKS:
        outline = mask_outline(coded(mask))
        assert outline.dtype == np.float64 and outline.shape[1] == 2
        np.testing.assert_array_equal(covered(outline, mask.shape), mask)


def test_rectangle_has_four_corners_and_ring_one_bridge():
    mask = np.zeros((8, 9), np.uint8)
    mask[2:5, 3:7] = 1
    assert sorted(mask_outline(as_text(mask)).tolist()) == [[3, 2], [3, 5], [7, 2], [7, 5]]
    mask[3, 4] = 0
    assert len(mask_outline(as_text(mask))) == 4 + 4 + 2  # there and back


@pytest.mark.parametrize(("size", "counts", "text"), [
    (None, [4], "size None"), ([2], [4], r"size \[2\]"), ([2, 0], [0], r"size \[2, 0\]"),
    ([2, 2.0], [4], "size"), ([2, 1 << 21], [1 << 22], "size"),
    ([1 << 14, 1 << 14], [1 << 28], "at most 134,217,728 are read"),
    *(([2, 2], counts, "do not fill") for counts in (
        [5], [3], [6, -2], [2**62, 2**62, 2**62, 2**62, 4])),
    # The last texts end within a number.
    *(([2, 2], counts, "runs of its mask") for counts in (
        [], [1, [1, 2]], [[1, 1, 1, 1]], [1.0, 3.0], ["1", "3"], None, {}, "", "4 ", "4é", "4P",
        "P" * 60 + "1")),
    ([2, 2], "O5", "below 0"),  # -1, 5
])  # fmt: skip
def test_damaged_runs_are_refused(size, counts, text):
    with pytest.raises(ValueError, match=text):
        mask_outline({"size": size, "counts": counts})


@pytest.mark.parametrize("counts", [
    [0, 0, 12], [3, 0, 9], [12, 0], [0, 12, 0], [0, 0, 2, 3, 7], [0, 3, 0, 3, 6], [2, 3, 0, 0, 7],
])  # fmt: skip
def test_zero_length_runs_change_nothing(counts):
    mask = np.repeat(np.arange(len(counts)) % 2, counts).reshape(4, 3).T
    runs, size = read_runs({"size": [3, 4], "counts": counts})
    np.testing.assert_array_equal(runs, runs_of_mask(mask.astype(np.uint8)))
    np.testing.assert_array_equal(covered(whole_outline(runs, size), size), mask)


def test_joined_parts_enclose_nothing_between_them():
    parts = [SQUARE, SQUARE + (10, 2), SQUARE + (4, 12), SQUARE[::-1] + (20, 20)]
    outline = join_parts(parts)
    expected = np.zeros((30, 30), bool)
    for x, y in ((0, 0), (10, 2), (4, 12), (20, 20)):
        expected[y : y + 4, x : x + 4] = True
    np.testing.assert_array_equal(covered(outline, (30, 30)), expected)
    assert {tuple(point) for point in outline.tolist()} == {
        tuple(point) for part in parts for point in part.tolist()
    }
    assert join_parts([SQUARE]) is SQUARE
