"""Texts and paths in arrays come back as they were."""

from pathlib import Path

import numpy as np

from utils.packed_texts import Paths, Texts

# Half a surrogate pair, a name that is no UTF-8, nothing at all.
TEXTS = ["a.jpg", "", "größe 图.png", "\ud800", "caf\udce9", "a\0b", "🐈"]
PATHS = ["a.jpg", "/b.jpg", "/data/a/1.jpg", "/data/a/2.jpg", "b/1.jpg", "..", "/", "caf\udce9/ä"]


def test_texts_come_back_one_by_one_and_all_together():
    texts = Texts.of(iter(TEXTS))
    assert len(texts) == len(TEXTS) and list(texts) == TEXTS
    assert [texts[index] for index in range(-7, 7)] == TEXTS + TEXTS
    assert list(texts.select(np.array([3, 3, 0]))) == [TEXTS[3], TEXTS[3], TEXTS[0]]
    assert list(Texts.of([])) == []


def test_paths_come_back_and_take_their_name_and_twelve_bytes():
    paths = Paths.of(Path(path) for path in PATHS)
    assert list(paths) == [paths[i] for i in range(len(PATHS))] == [Path(path) for path in PATHS]
    chosen = paths.select(np.array([2, 3]))
    assert list(chosen) == [Path("/data/a/1.jpg"), Path("/data/a/2.jpg")]
    assert list(paths.folders).count("/data/a/") == 1 and list(Paths.of([])) == []
    many = Paths.of(Path(f"/a/very/long/folder/{number:012}.jpg") for number in range(99))
    arrays = (many.names.content, many.names.starts, many.folder_of)
    assert sum(array.nbytes for array in arrays) == 99 * (16 + 12) + 8
