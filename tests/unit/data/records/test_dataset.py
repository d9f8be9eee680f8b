"""Packed datasets: the same samples and batches as from files, and back to files byte for byte."""

import errno
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from duet.utils.data.loading.batches import TrainRecipe, ValRecipe
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.data.records import __main__ as command
from duet.utils.data.records.layout import forget_open_files, read_table
from duet.utils.data.records.packing import pack_samples
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.image_sources import list_images
from duet.utils.data.sources.samples import Sample
from duet.utils.data.sources.splits import scan_samples
from duet.utils.errors import DatasetError
from tests.unit.data.compared import EVERYTHING, digest
from tests.unit.data.image_files import image_file, index_entry, records_of
from tests.unit.files.test_atomic import full_disk

NAMES = ("cell", "platelet")
SUFFIXES = ("jpg", "png", "jpeg", "webp", "bmp", "tif")
LABELS = b"0 0.5 0.5 0.25 0.5\r\n1 0.2 0.2 0.1 0.1 0.3 0.4"  # no line break at the end


def add_image(path: Path, seed: int, labels: bytes | None = LABELS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    generator = np.random.Generator(np.random.Philox(key=seed))
    assert cv2.imwrite(str(path), generator.integers(0, 256, (30 + seed, 50, 3), np.uint8))
    if labels is not None:
        label = Path(str(path).replace("/images/", "/labels/")).with_suffix(".txt")
        label.parent.mkdir(parents=True, exist_ok=True)
        label.write_bytes(labels)
    return path


def write_yaml(path: Path, **entries: object) -> Path:
    document = {"path": ".", **entries, "names": list(NAMES)}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@pytest.fixture
def dataset(tmp_path) -> Path:
    """Images of all kinds, with labels, empty labels and none; returns the dataset YAML."""
    folder = tmp_path / "cells"
    for number in range(9):
        labels = {7: b"", 8: None}.get(number, LABELS)
        add_image(folder / f"images/train/{number:03d}.{SUFFIXES[number % 6]}", number, labels)
    add_image(folder / "images/val/größe 1.jpg", 9)
    add_image(folder / "images/val/sub/002.jpg", 10)
    return write_yaml(folder / "cells.yaml", train="images/train", val="images/val")


def samples_of(data: Path, split: str = "train") -> list[Sample]:
    report = scan_samples(list_images(getattr(load_dataset(data), split)), len(NAMES))
    assert report.problems == []
    return report.samples


def pack(data: Path, out: Path, file_bytes: int = 1 << 30) -> Path:
    splits = {split: samples_of(data, split) for split in ("train", "val")}
    pack_samples(splits, NAMES, out / "cells.yaml", file_bytes)
    return out / "cells.yaml"


def run(*words: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["records", *map(str, words)])
        command.main()


def unpack(data: Path, out: Path) -> Path:
    run("unpack", "--data", data, "--out", out)
    return out / data.name


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_record_file_holds_raw_images_then_an_index(tmp_path):
    image = add_image(tmp_path / "images/a.jpg", 2, b"1 0.5 0.5 1 1\n")
    other = add_image(tmp_path / "images/b.png", 3, None)
    add_image(tmp_path / "images/val/c.png", 3)
    data = write_yaml(tmp_path / "a.yaml", train=["a.txt"], val="images/val")
    (tmp_path / "a.txt").write_text("images/a.jpg\nimages/b.png\n")
    packed = pack(data, tmp_path / "out").parent / "train/PART_00000.ffr"
    index = (
        b"duet-img" + bytes.fromhex("01000000 02000000")  # version, number of images
        # height 32, width 50, bytes of labels and of the name
        + bytes.fromhex("20000000 32000000 0e000000 0c00") + b"images/a.jpg1 0.5 0.5 1 1\n"
        + bytes.fromhex("21000000 32000000 ffffffff 0c00") + b"images/b.png"
    )  # fmt: skip
    assert records_of(packed.read_bytes()) == [image.read_bytes(), other.read_bytes(), index]


def test_batches_from_records_are_byte_identical(dataset, tmp_path):
    packed = pack(dataset, tmp_path / "packed", file_bytes=30_000)
    assert len(list((tmp_path / "packed/train").iterdir())) > 1
    digests = []
    for data in (dataset, packed, unpack(packed, tmp_path / "unpacked")):
        samples = samples_of(data)
        with TrainLoader(samples, TrainRecipe(64, 4, EVERYTHING, seed=3), workers=1) as loader:
            digests.append([digest(batch) for epoch in (0, 5) for batch in loader.epoch(epoch)])
        with ValLoader(samples, ValRecipe(64, 4)) as loader:
            digests[-1] += [digest(batch) for batch in loader]
    assert len(set(digests[0])) == 9
    assert digests[0] == digests[1] == digests[2]


def test_packing_and_unpacking_restores_the_files(dataset, tmp_path):
    data = unpack(pack(dataset, tmp_path / "packed", file_bytes=1), tmp_path / "unpacked")
    assert len(list((tmp_path / "packed/train").iterdir())) == 9
    before, after = files_below(dataset.parent), files_below(data.parent)
    expected = {name: before[name] for name in before if name != "cells.yaml"}
    assert len(expected) == 11 + 10
    lists = {"train.txt", "val.txt", "cells.yaml"}
    assert {name: after[name] for name in after if name not in lists} == expected
    assert lists < set(after)
    assert load_dataset(data).class_names == NAMES


def test_packed_list_keeps_order_and_repetitions(dataset, tmp_path):
    lines = [f"images/train/{number:03d}.{SUFFIXES[number % 6]}" for number in (4, 0, 4, 2)]
    (dataset.parent / "chosen.txt").write_text("\n".join(lines), encoding="utf-8")
    data = write_yaml(dataset.parent / "chosen.yaml", train="chosen.txt", val="images/val")
    unpacked = unpack(pack(data, tmp_path / "packed"), tmp_path / "unpacked")
    assert (tmp_path / "unpacked/train.txt").read_text() == "".join(f"./{x}\n" for x in lines)
    assert [sample.height for sample in samples_of(unpacked)] == [34, 30, 34, 32]


def test_yaml_may_name_record_files_folders_and_lists(dataset, tmp_path):
    packed = pack(dataset, tmp_path / "packed", file_bytes=1).parent
    names = [f"train/PART_{number:05d}.ffr" for number in (0, 1, 2)]
    data = write_yaml(packed / "parts.yaml", train=names[::-1], val=[names[1], "val"])
    assert [sample.height for sample in samples_of(data)] == [32, 31, 30]
    assert [sample.height for sample in samples_of(data, "val")] == [31, 39, 40]
    both = write_yaml(packed / "both.yaml", train=[str(dataset.parent / "images/val"), names[0]],
                      val="val")  # fmt: skip
    assert [sample.height for sample in samples_of(both)] == [39, 40, 30]


def test_folder_of_records_and_images_is_refused(dataset, tmp_path):
    packed = pack(dataset, tmp_path / "packed").parent
    stray = add_image(packed / "train/images/stray.jpg", 1)
    with pytest.raises(DatasetError, match="also images") as caught:
        samples_of(packed / "cells.yaml")
    assert str(stray) in str(caught.value)


def damage(path: Path, number: int) -> None:
    """Flip a bit in a record."""
    place = read_table(path).place(number)
    with open(path, "r+b") as file:
        file.seek(place.offset + place.length // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def test_damaged_record_error_names_file_record_and_remedy(dataset, tmp_path):
    samples = samples_of(pack(dataset, tmp_path / "packed"))
    damage(samples[0].record.path, 6)
    with (
        TrainLoader(samples, TrainRecipe(64, 2, EVERYTHING)) as loader,
        pytest.raises(DatasetError) as caught,
    ):
        list(loader.epoch(0))
    for part in (str(samples[0].record.path), "record 6 has the checksum", "copy it again"):
        assert part in str(caught.value)


@pytest.mark.parametrize("change", ["cut", "removed"])
def test_record_file_changed_after_the_scan_is_an_error(dataset, tmp_path, change):
    samples = samples_of(pack(dataset, tmp_path / "packed"))
    path = samples[0].record.path
    moved = path.rename(path.with_name("moved.ffr"))
    if change == "cut":
        moved.rename(path)
        os.truncate(path, samples[-1].record.offset)
    forget_open_files()  # as in a worker, which has not opened it yet
    reason = "beyond the end" if change == "cut" else os.strerror(errno.ENOENT)
    with (
        TrainLoader(samples[-1:], TrainRecipe(64, 1, EVERYTHING)) as loader,
        pytest.raises(DatasetError, match=reason),
    ):
        list(loader.epoch(0))


def test_full_disk_leaves_no_packed_folder(dataset, tmp_path):
    before = sorted(tmp_path.iterdir())
    message = "nothing was left there.*free some space"
    with full_disk(10_000), pytest.raises(DatasetError, match=message):
        pack(dataset, tmp_path / "packed")
    assert sorted(tmp_path.iterdir()) == before


def test_packing_overwrites_nothing(dataset, tmp_path):
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "folder", "link"):
        with pytest.raises(DatasetError, match="already exists; choose a new folder"):
            pack(dataset, tmp_path / name)
    assert (tmp_path / "file").read_text() == "precious"
    assert not any((tmp_path / "folder").iterdir())


@pytest.mark.parametrize(
    ("side", "image_bytes", "label_bytes", "reason"),
    [
        (2**20 + 1, 9, 9, "it is 40x1048577 px"),
        (30, 2**30 + 1, 9, "it has more than 1073741824 bytes"),
        (30, 9, 2**22 + 1, "its label file has 4,194,305 bytes"),
    ],
)
def test_unreadable_sizes_are_not_packed(tmp_path, side, image_bytes, label_bytes, reason):
    path = tmp_path / "a.jpg"
    for file, size in ((path, image_bytes), (path.with_suffix(".txt"), label_bytes)):
        file.touch()
        os.truncate(file, size)
    sample = Sample(path, side, 40, np.zeros(0, np.int64), np.zeros((0, 4), np.float32))
    with pytest.raises(DatasetError, match=f"{path}: cannot be packed: {reason}"):
        pack_samples({"train": [sample]}, NAMES, tmp_path / "out/cells.yaml", 1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("second", ["images/a.jpg", "train.txt", "a.yaml", "images/a.jpg/b"])
def test_conflicting_names_are_not_unpacked(tmp_path, second):
    entries = [index_entry(name.encode()) for name in ("images/a.jpg", second)]
    (tmp_path / "a.ffr").write_bytes(image_file(*entries))
    data = write_yaml(tmp_path / "a.yaml", train="a.ffr", val="a.ffr")
    with pytest.raises(DatasetError, match="two files of different content|cannot be written"):
        unpack(data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_pack_and_unpack_commands_report_and_refuse(dataset, tmp_path, capsys, caplog):
    (dataset.parent / "images/train/broken.jpg").write_bytes(b"\xff\xd8 no image")
    add_image(dataset.parent / "images/train/wrong.jpg", 3, b"5 0.5 0.5 0.1 0.1")
    run("pack", "--data", dataset, "--out", tmp_path / "packed")
    lines = capsys.readouterr().out.splitlines()
    for name, line in zip(("broken.jpg", "wrong.jpg"), caplog.messages, strict=False):
        assert f"images/train/{name}: left out: " in line
    assert "train: 9 images packed" in lines
    assert lines[-1] == f"train with --data {tmp_path / 'packed/cells.yaml'}"
    damage(tmp_path / "packed/train/PART_00000.ffr", 1)
    words = "unpack", "--data", tmp_path / "packed/cells.yaml", "--out", tmp_path / "un"
    with pytest.raises(DatasetError, match="record 1 has the checksum"):
        run(*words)
    run(*words, "--splits", "val")
    assert sorted(files_below(tmp_path / "un")) == [
        "cells.yaml",
        "images/val/größe 1.jpg",
        "images/val/sub/002.jpg",
        "labels/val/größe 1.txt",
        "labels/val/sub/002.txt",
        "val.txt",
    ]
    more = write_yaml(dataset.parent / "more.yaml", train="images/train", val="images/val",
                      test="absent")  # fmt: skip
    (tmp_path / "empty.yaml").write_text("names: [a]")
    for name, data, message in (
        ("pack", tmp_path / "empty.yaml", "names no images"),
        ("unpack", tmp_path / "empty.yaml", "names no images"),
        ("pack", tmp_path / "packed/cells.yaml", "is packed already"),
        ("unpack", dataset, "not packed"),
        ("pack", more, "'test'.*--splits"),
    ):
        with pytest.raises(DatasetError, match=message):
            run(name, "--data", data, "--out", tmp_path / "again")
    assert not (tmp_path / "again").exists()
