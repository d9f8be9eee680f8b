"""Images of any name that a file may have: from a folder to a batch, and to detect.py's files."""

import os
from pathlib import Path

import numpy as np

from duet.utils.data.loading.batches import TrainRecipe, ValRecipe
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.data.sources.image_sources import ImageFile, list_images
from duet.utils.data.sources.label_file import label_path
from duet.utils.data.sources.splits import scan_samples
from duet.utils.detect.config import DetectConfig
from duet.utils.detect.media.finding import find_sources
from duet.utils.detect.results.result import Result
from duet.utils.detect.results.run_files import RunFiles
from tests.unit.data.image_files import encoded
from tests.unit.detect.made import make_detections

STEMS = [
    "two words", " blank at the start", "猫の写真", "emoji 😀🐱", "é composed", "é in two",
    "number # 7", "100%", "%s %d", "a&b;c", "quote's \"name\"", "back\\slash", "star * [1] ?",
    "~", "-flag", "a.b.c", ".hidden", "x" * 251, "人" * 83, "$HOME", "{0}", "tab\tin",
    "\udce9 latin", "\x1b[31mred", "\u202ebackwards",
]  # fmt: skip
IN_NO_LIST = ["two\nlines", "carriage\rreturn", "line\u2028separator", "blank at the end "]
SIZE = 24, 32


def image(number: int) -> np.ndarray:
    """An image whose colour is its own."""
    return np.full((*SIZE, 3), number * 7, np.uint8)


def write_images(folder: Path, stems: list[str]) -> list[Path]:
    """Write images, every other with its suffix in capitals, and a label file for each."""
    (folder / "labels").mkdir(parents=True)
    (folder / "images").mkdir()
    paths = []
    for number, stem in enumerate(stems):
        path = folder / "images" / f"{stem}.{('png', 'PNG')[number % 2]}"
        path.write_bytes(encoded(image(number), "PNG"))
        label_path(path).write_text("0 0.5 0.5 0.25 0.5\n")
        paths.append(path)
    return paths


def colours(loader) -> list[tuple[int, int]]:
    """Return each sample's index and the colour of its image in the batches."""
    with loader:
        batches = list(loader.epoch(0)) if isinstance(loader, TrainLoader) else list(loader)
    return [
        (int(index), int(pixels[0, 32, 32]))
        for batch in batches
        for index, pixels in zip(batch.sample_indices, batch.images, strict=True)
    ]


def test_oddly_named_files_are_scanned_and_loaded(tmp_path):
    paths = write_images(tmp_path / "a # b 数据\udcff", [*STEMS, *IN_NO_LIST])
    report = scan_samples(list_images([paths[0].parent]), 1)
    assert report.problems == []
    assert [sample.image_path for sample in report.samples] == sorted(paths)
    assert all(len(sample.class_index) == 1 for sample in report.samples)
    expected = [(place, paths.index(path) * 7) for place, path in enumerate(sorted(paths))]
    for workers in (0, 1):
        train = TrainLoader(report.samples, TrainRecipe(64, 8), workers)
        assert sorted(colours(train)) == expected
        val = ValLoader(report.samples, ValRecipe(64, 8, rectangular=False), workers)
        assert colours(val) == expected


def test_list_file_names_any_file_without_line_ends(tmp_path):
    stems = [stem for stem in STEMS if stem == stem.strip()]
    paths = write_images(tmp_path, stems)
    lines = [os.fsencode(path.relative_to(tmp_path)) for path in paths]
    for end in (b"\n", b"\r\n"):
        (tmp_path / "list.txt").write_bytes(b"\xef\xbb\xbf" + end.join(lines) + end)
        assert list_images([tmp_path / "list.txt"]) == list(map(ImageFile, paths))


def test_detect_reads_and_writes_oddly_named_files(tmp_path):
    paths = write_images(tmp_path / "data", [*STEMS, *IN_NO_LIST])
    sources = find_sources(str(paths[0].parent), 10**6)
    assert {source.name for source in sources} == set(paths)
    config = DetectConfig(weights=("a.pt",), save_txt=True, save_csv=True, save_json=True)
    with RunFiles(tmp_path, config, ("cat",)) as files:
        for source in sources:
            (frame,) = source.frames()
            found = make_detections((4, 4, 12, 12, 0.9, 0))
            assert (frame.image == image(paths.index(frame.source))).all()
            files.add(Result(frame, found, ("cat",), None))
    assert len(list((tmp_path / "labels").iterdir())) == len(paths)
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == len(paths)
