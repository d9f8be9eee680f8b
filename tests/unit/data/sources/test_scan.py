"""Scans and large COCO files are kept until a file changes, and results never differ."""

import errno
import logging
import os
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from duet.utils.data.image import header
from duet.utils.data.masks import runs
from duet.utils.data.sources import annotations, drawn_split, image_sources, label_file
from duet.utils.data.sources import scan as scanning
from duet.utils.data.sources.annotations import read_annotations
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.drawn_split import read_fingerprints
from duet.utils.data.sources.formats import coco
from duet.utils.data.sources.formats.format import AnnotatedFolder
from duet.utils.data.sources.image_sources import ImageFile, list_images
from duet.utils.data.sources.scan import Memory
from duet.utils.data.sources.splits import load_split, scan_samples
from duet.utils.errors import DatasetError
from duet.utils.files import array_cache, regular, xml_files
from duet.utils.geometry import boxes, detections
from duet.utils.project import PROJECT
from tests.rank_threads import RankFailures, run_rank_threads
from tests.unit.data.compared import assert_same_samples
from tests.unit.data.formats import annotation_files
from tests.unit.data.formats.annotation_files import coco_object, touch, write

BOX, TWICE, BROKEN = "1 0.5 0.5 0.2 0.2\n", "0 0.5 0.5 0.2 0.2\n" * 2, "1 0.5\n"
LEFT_OUT = [os.fsdecode(b"cut caf\xe9\n.png"), "größe 1.png"]  # read again by each scan
POLYGON = "2 0.1 0.1 0.3 0.1 0.2 0.4\n"
LABELS = (BOX, BROKEN, TWICE, None, "", BOX + POLYGON, BOX, POLYGON, BOX, BOX)


@pytest.fixture(autouse=True)
def cache_everything(tmp_path, monkeypatch):
    """Keep what was read of small datasets, and of files that were written a moment ago."""
    monkeypatch.setenv("DUET_CACHE", str(tmp_path / "cache"))
    for module in (scanning, annotations):
        monkeypatch.setattr(module, "FEWEST_IMAGES", 1)
    monkeypatch.setattr(array_cache, "RECENT_NS", 0)


@pytest.fixture
def data(tmp_path):
    root = tmp_path / "data"
    (root / "images").mkdir(parents=True)
    (root / "labels").mkdir()
    for number, text in enumerate(LABELS):
        image = np.full((12 + number, 30 - number, 3), 20 * number, np.uint8)
        cv2.imwrite(str(root / f"images/größe {number}.png"), image)
        if text is not None:
            (root / f"labels/größe {number}.txt").write_text(text)
    (root / "images" / LEFT_OUT[0]).write_bytes(b"no image")
    yaml = root / "data.yaml"
    yaml.write_text("path: .\ntrain: images\nval: images\nnames: [a, b, c]\n")
    return yaml


def noted(monkeypatch, module, name):
    """Return a list that gets the name of each file with which a function is called."""
    names, function = [], getattr(module, name)

    def noting(file, *arguments):
        names.append(getattr(file, "path", file).name)
        return function(file, *arguments)

    monkeypatch.setattr(module, name, noting)
    return names


@pytest.fixture
def read(monkeypatch):
    """The images whose header a scan reads."""
    return noted(monkeypatch, image_sources, "check_file")


def scan(data, split="train", **settings):
    return load_split(load_dataset(data), split, **settings)


def test_unchanged_files_are_not_reread_but_problems_repeat(data, read, caplog):
    with caplog.at_level(logging.WARNING):
        first = scan(data)
    reported = caplog.messages
    assert len(read) == 11 and len(first) == 9 and len(reported) == 4
    caplog.clear()
    read.clear()
    with caplog.at_level(logging.WARNING):
        assert_same_samples(scan(data), first)
    assert sorted(read) == LEFT_OUT and caplog.messages == reported


def test_log_names_100_faults_and_counts_all(data, caplog):
    for number in range(300):
        (data.parent / f"images/{number}.png").write_bytes(b"no image")
    with caplog.at_level(logging.WARNING):
        samples = scan(data)
    assert len(caplog.messages) == 100 + 2
    others, head = caplog.messages[-2:]
    assert others == "... and 203 more; `duet check` lists all"
    assert head == "train: 302 of 311 images not used as labelled"
    assert samples.remarks.numbers["unusable_image"] == 301


def test_state_of_a_labelled_image_takes_four_stats(tmp_path, monkeypatch):
    """Of the folder and file of labels, then the times of image and labels."""
    touch(tmp_path, "images/a.jpg", "labels/a.txt")
    image, asked, stat = ImageFile(tmp_path / "images/a.jpg"), [], os.stat
    monkeypatch.setattr(os, "stat", lambda path, **options: asked.append(path) or stat(path))
    assert image.state(2**62) is not None
    assert len(asked) <= 4


def test_temporarily_unreadable_image_is_read_next_time(data, monkeypatch):
    with monkeypatch.context() as failing:
        for module, name in ((header, "größe 0.png"), (label_file, "größe 7.txt")):
            fail_to_open(failing, module, name)
        assert len(scan(data)) == 7
    assert len(scan(data)) == 9


def fail_to_open(monkeypatch, module, name):
    """Let a module's reader of files fail with one file, as a network's file system may."""
    reader = "open_regular" if hasattr(module, "open_regular") else "read_bytes"
    whole = getattr(module, reader)

    def failing(path, *limits):
        if Path(path).name == name:
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return whole(path, *limits)

    monkeypatch.setattr(module, reader, failing)


def write_image(path, height, width):
    cv2.imwrite(str(path), np.zeros((height, width, 3), np.uint8))


def relink(images):
    (images / "größe 8.png").unlink()
    (images / "größe 8.png").symlink_to(images / "größe 7.png")


def restore_mtime(images):
    """Change a label file, but neither its size nor its time."""
    path = images.parent / "labels/größe 0.txt"
    status = path.stat()
    path.write_text("2" + BOX[1:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


CHANGES = {
    "time put back": restore_mtime,
    "label": lambda images: (images.parent / "labels/größe 0.txt").write_text(POLYGON),
    "label made": lambda images: (images.parent / "labels/größe 3.txt").write_text(BOX),
    "label removed": lambda images: (images.parent / "labels/größe 6.txt").unlink(),
    "image": lambda images: write_image(images / "größe 0.png", 40, 50),
    "added": lambda images: write_image(images / "a new one.png", 60, 70),
    "removed": lambda images: (images / "größe 9.png").unlink(),
    "linked": relink,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_change_triggers_a_full_rescan(data, read, change):
    scan(data)
    change(data.parent / "images")
    read.clear()
    found = scan(data)
    images = list_images([data.parent / "images"])
    assert sorted(read) == sorted(image.path.name for image in images)
    assert_same_samples(found, scan_samples(images, 3).samples)


def test_relabelled_annotation_object_is_read_again(tmp_path, read):
    names = [f"{number}.png" for number in range(3)]
    for name in names:
        write_image(tmp_path / name, 100, 200)
    file = tmp_path / "a.json"
    for box in ([1, 1, 5, 5], [2, 2, 10, 6]):
        boxes = [[1, 1, 5, 5], box, [1, 1, 5, 5]]
        objects = [coco_object(x, image=7 + number) for number, x in enumerate(boxes)]
        write(file, annotation_files.coco(objects, names))
        dataset = load_dataset(file, splits=("train",))
        for expected in (3, 0):
            read.clear()
            samples = load_split(dataset, "train")
            assert len(read) == expected
    np.testing.assert_array_equal(
        samples[1].boxes_cxcywh_norm, np.float32([[0.035, 0.05, 0.05, 0.06]])
    )


def test_other_settings_or_version_trigger_a_rescan(data, read, monkeypatch):
    few = data.with_name("few.yaml")
    few.write_text(data.read_text().replace("[a, b, c]", "[a, b]"))
    for _ in range(2):
        read.clear()
        assert len(scan(data)) == 9
        assert len(scan(few)) == 7  # two have objects of the third class
        assert len(scan(data, max_pixels=435)) == 6  # 18 x 24 px and below
    assert len(read) == (11 - 9) + (11 - 7) + (11 - 6)  # those that are left out
    merged = load_split(load_dataset(data, single_class=True), "train")
    assert not merged.class_index.any() and len(merged) == 9
    changes = {"version_of": lambda *patterns: b"another", "distributions": lambda name: ()}
    for name, value in changes.items():  # other code, or a package that reads images has gone
        read.clear()
        monkeypatch.setattr(scanning, name, value)
        scan(data)
        assert len(read) == 11


def test_moved_or_copied_dataset_uses_its_own_paths(data, read):
    scan(data)
    moved = data.parent.with_name("moved")
    data.parent.rename(moved)
    found = scan(moved / "data.yaml")
    assert len(found) == 9 and all(moved in sample.image_path.parents for sample in found)
    shutil.copytree(moved, data.parent)  # another one where the first was
    (data.parent / "labels/größe 0.txt").write_text(POLYGON)
    assert scan(data)[0].class_index.tolist() == [2]


@pytest.mark.parametrize("world_size", [2, 12])
def test_ranks_scan_shards_and_share_a_cached_result(data, read, world_size):
    images = list_images([data.parent / "images"])
    expected = scan_samples(images, 3)
    read.clear()

    def scan_rank(world, memory=None):
        return scan_samples(images, 3, world=world, memory=memory)

    for found in run_rank_threads(world_size, scan_rank):
        assert found.problems == expected.problems
        assert_same_samples(found.samples, expected.samples)
    assert sorted(read) == sorted(image.path.name for image in images)
    expected = scan(data)
    read.clear()
    for found in run_rank_threads(world_size, lambda world: scan(data, world=world)):
        assert_same_samples(found, expected)
    assert sorted(read) == sorted(LEFT_OUT * world_size)
    shutil.rmtree(data.parent.parent / "cache")
    run_rank_threads(world_size, lambda world: scan(data, world=world))
    read.clear()
    assert_same_samples(scan(data), expected)
    assert sorted(read) == LEFT_OUT


def test_all_ranks_scan_when_one_machine_lacks_the_cache(data, read, monkeypatch):
    images = list_images([data.parent / "images"])
    expected = scan_samples(images, 3, memory=Memory("labels", "known"))
    read.clear()
    for found in run_rank_threads(
        2,
        lambda world: scan_samples(
            images, 3, world=world, memory=Memory("labels", f"known{'?' * world.process.rank}")
        ),
    ):
        assert_same_samples(found.samples, expected.samples)
    assert sorted(read) == sorted([*(image.path.name for image in images), *LEFT_OUT])


@pytest.mark.parametrize("chosen", [slice(0, 2), slice(4, 6)])  # none usable; none with an object
def test_all_ranks_refuse_with_the_single_process_error(data, chosen):
    names = [*LEFT_OUT, *(f"größe {number}.png" for number in (0, 2, 3, 4))]
    images = [ImageFile(data.parent / "images" / name) for name in names]
    errors = []
    for _ in range(2):
        with pytest.raises(DatasetError) as caught:
            scan_samples(images[chosen], 3, memory=Memory("labels", "name"))
        errors.append(str(caught.value))
    with pytest.raises(RankFailures) as failures:
        run_rank_threads(2, lambda world: scan_samples(images[chosen], 3, world=world))
    assert [*map(str, failures.value.errors), *errors] == [errors[0]] * 4


@pytest.mark.parametrize("other", [slice(1, None), slice(None, None, -1)])
def test_ranks_with_different_images_are_an_error(data, other):
    images = list_images([data.parent / "images"])

    def scan_rank(world):
        return scan_samples(images[other] if world.process.rank else images, 3, world=world)

    with pytest.raises(RankFailures) as caught:
        run_rank_threads(2, scan_rank)
    for error in caught.value.errors:
        assert isinstance(error, DatasetError)
        assert "processes found different images" in str(error)


def test_small_or_known_dataset_writes_no_cache(data, tmp_path, monkeypatch):
    monkeypatch.setattr(scanning, "FEWEST_IMAGES", 12)
    scan(data)
    assert not (tmp_path / "cache").exists()
    monkeypatch.setattr(scanning, "FEWEST_IMAGES", 11)
    scan(data)
    (path,) = (tmp_path / "cache/labels").iterdir()
    number = path.stat().st_ino
    scan(data)
    assert path.stat().st_ino == number


@pytest.fixture
def fingerprinted(monkeypatch):
    """The images whose fingerprint is read."""
    return noted(monkeypatch, drawn_split, "read_fingerprint")


def write_noise(path, seed):
    noise = np.random.default_rng(seed).integers(0, 256, (16, 16, 3))
    cv2.imwrite(str(path), noise)
    return path


def test_fingerprints_are_cached_until_a_file_changes(tmp_path, fingerprinted):
    paths = [write_noise(tmp_path / f"{number}.png", number) for number in range(6)]
    (tmp_path / "flat.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    images = list(map(ImageFile, paths))
    flat = ImageFile(tmp_path / "flat.jpg")
    first = run_rank_threads(3, lambda world: read_fingerprints([*images, flat], world))
    assert first[0] == first[1] == first[2] and len(fingerprinted) == 7
    fingerprinted.clear()
    assert read_fingerprints([*images, flat]) == first[0] and fingerprinted == ["flat.jpg"]
    write_noise(paths[2], 9)
    fingerprinted.clear()
    changed = read_fingerprints(images)
    assert sorted(fingerprinted) == [f"{number}.png" for number in range(6)]
    assert [one == other for one, other in zip(first[0], changed, strict=False)].count(False) == 1
    fingerprinted.clear()
    assert read_fingerprints(images) == changed and not fingerprinted


def test_recently_written_files_are_read_again(data, read, fingerprinted, monkeypatch):
    """Within a tick of the file system's clock a file may change without another time."""
    monkeypatch.setattr(array_cache, "RECENT_NS", 10**12)
    images = list_images([data.parent / "images"])
    for _ in range(2):
        scan(data)
        read_fingerprints(images)
    assert (len(read), len(fingerprinted)) == (22, 22)


@pytest.mark.parametrize(
    "module", [label_file, header, runs, regular, xml_files, boxes, detections]
)
def test_cache_version_covers_the_reading_code(module):
    covered = {path for pattern in scanning._READERS for path in PROJECT.glob(pattern)}
    assert PROJECT / Path(module.__file__).resolve().relative_to(PROJECT.resolve()) in covered


OBJECTS = [
    coco_object([1, 2, 3.5, 4], [[1, 2, 4.5, 2, 4.5, 6]]),
    coco_object([0, 0, 9, 9], image=8, iscrowd=1),
    coco_object([0, 0, 9, 9.25]),
    coco_object([1], image=9),
]


@pytest.fixture
def times(monkeypatch):
    """The files that are parsed."""
    return noted(monkeypatch, coco, "read_instances")


@pytest.fixture
def folder(tmp_path):
    names = [f"größe/{n}.jpg" for n in range(3)]
    touch(tmp_path / "images", *names)
    categories = [{"id": 5, "name": "Hund \N{DOG}"}, {"id": 6, "name": "unused"}]
    write(tmp_path / "a.json", annotation_files.coco(OBJECTS, names, categories=categories))
    return AnnotatedFolder("COCO JSON", tmp_path / "a.json", tmp_path / "images")


def test_cached_annotations_equal_the_parsed_ones(folder, times):
    first, again = read_annotations(folder), read_annotations(folder)
    assert len(times) == 1
    for name in ("class_names", "paths", "broken"):
        assert tuple(getattr(first, name)) == tuple(getattr(again, name))
    assert first.left_out == again.left_out == {"crowds": 1} and any(first.broken)
    for name in ("sizes", "starts", "class_index", "boxes_xyxy"):
        one, other = getattr(first, name), getattr(again, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(first.polygons.points_xy, again.polygons.points_xy)
    np.testing.assert_array_equal(first.polygons.starts, again.polygons.starts)


def test_changed_annotations_list_or_images_are_read_again(folder, times, tmp_path):
    read_annotations(folder)
    text = folder.annotations.read_text()
    folder.annotations.write_text(text.replace("9.25", "8.25"))
    assert read_annotations(folder).boxes_xyxy.max() == 9
    assert len(times) == 2
    shutil.move(tmp_path / "images" / "größe" / "0.jpg", tmp_path / "images" / "0.jpg")
    for image in (tmp_path / "images" / "größe").iterdir():
        shutil.move(image, tmp_path / "images" / image.name)
    assert read_annotations(folder).paths[0] == str(tmp_path / "images" / "0.jpg")
    assert len(times) == 3
    (tmp_path / "list.txt").write_text("0.jpg\n")
    listed = folder._replace(image_list=tmp_path / "list.txt")
    assert len(read_annotations(listed)) == 1 and len(times) == 4
    (tmp_path / "list.txt").write_text("0.jpg\n1.jpg\n")
    assert len(read_annotations(listed)) == 2 and len(times) == 5


def test_annotation_warning_is_logged_each_time(folder, times, caplog):
    text = folder.annotations.read_text()
    folder.annotations.write_text(text.replace("unused", "Hund \\ud83d\\udc15"))
    for number in (1, 2):
        read_annotations(folder)
        assert len(times) == number
        assert f"{folder.annotations}: categories of one name are taken for" in caplog.text
        caplog.clear()


def test_small_annotation_file_is_not_cached(folder, times, tmp_path, monkeypatch):
    monkeypatch.setattr(annotations, "FEWEST_IMAGES", 4)
    for _ in range(2):
        read_annotations(folder)
    assert len(times) == 2 and not (tmp_path / "cache").exists()
