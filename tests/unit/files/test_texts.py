"""Texts and paths in arrays come back as they were."""

from pathlib import Path

import numpy as np
import pytest

from utils.files.texts import Paths, Texts

# Half a surrogate pair, a name that is no UTF-8, nothing at all.
TEXTS = ["a.jpg", "", "größe 图.png", "\ud800", "caf\udce9", "a\0b", "🐈"]
PATHS = ["a.jpg", "/b.jpg", "/data/a/1.jpg", "/data/a/2.jpg", "b/1.jpg", "..", "/", "caf\udce9/ä"]


def test_texts_come_back_one_by_one_and_all_together():
    texts = Texts.of(iter(TEXTS))
    assert len(texts) == len(TEXTS)
    assert list(texts) == TEXTS
    assert [texts[index] for index in range(-7, 7)] == TEXTS + TEXTS
    assert list(texts[1:5:2]) == TEXTS[1:5:2]
    assert list(texts.select(np.array([3, 3, 0]))) == [TEXTS[3], TEXTS[3], TEXTS[0]]
    assert texts.lengths.tolist()[:3] == [5, 0, len("größe 图.png".encode())]


def test_no_texts_are_texts_too():
    assert list(Texts.of([])) == [] == list(Texts.of([])[0:3])
    with pytest.raises(IndexError):
        Texts.of([])[0]


def test_paths_come_back_and_folders_are_kept_once():
    paths = Paths.of(Path(path) for path in PATHS)
    assert list(paths) == [Path(path) for path in PATHS]
    assert [paths[index] for index in range(len(PATHS))] == list(paths)
    assert [path.name for path in paths] == [Path(path).name for path in PATHS]
    assert list(paths[2:4]) == [Path("/data/a/1.jpg"), Path("/data/a/2.jpg")]
    assert list(paths.folders).count("/data/a/") == 1
    assert list(Paths.of([])) == []


def test_a_path_of_a_table_takes_its_name_and_twelve_bytes():
    paths = Paths.of(
        Path(f"/a/very/long/folder/of/images/{number:012}.jpg") for number in range(99)
    )
    arrays = (paths.names.content, paths.names.starts, paths.folder_of)
    assert sum(array.nbytes for array in arrays) == 99 * (16 + 12) + 8
