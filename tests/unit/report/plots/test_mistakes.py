"""Mistakes of a classifier: images that are surely taken for another class."""

import cv2
import numpy as np

from tests.unit.report.plots.drawn import NAMES, read_rgb
from utils.data.sources.samples import Sample
from utils.evaluation.classes.metric import Mistake
from utils.report.plots import images
from utils.report.plots.images import TILE, plot_mistakes


def sample(folder, number, colour):
    path = folder / f"{number}.png"
    cv2.imwrite(str(path), np.full((20, 30, 3), colour, np.uint8))
    return Sample(path, 20, 30, np.zeros(1, np.int64), np.float32([[0.5, 0.5, 1, 1]]))


def test_each_mistake_is_a_tile_with_both_classes_and_the_score(monkeypatch, tmp_path):
    told = []
    framed = images.framed
    monkeypatch.setattr(
        images, "framed", lambda tile, of, text: told.append(text) or framed(tile, of, text)
    )
    samples = [sample(tmp_path, number, (0, 0, 255)) for number in range(3)]
    mistakes = [Mistake(0.97, 2, 0, 1), Mistake(0.5, 0, 1, 0)]
    plot_mistakes(mistakes, samples, NAMES, tmp_path / "m.jpg")
    assert [text.split(", not ")[1].split()[-1] for text in told] == ["0.97", "0.50"]
    assert told[1].startswith("cell, not ")
    picture = read_rgb(tmp_path / "m.jpg")
    assert picture.shape[1] == 2 * TILE
    red = (picture[..., 0] > 200) & (picture[..., 1] < 60)
    assert red[:, :TILE].sum() > TILE * TILE / 2 < red[:, TILE:].sum()


def test_an_image_that_is_gone_is_left_grey(tmp_path):
    gone = sample(tmp_path, 0, 255)
    gone.image_path.unlink()
    plot_mistakes([Mistake(0.9, 0, 0, 1)], [gone], NAMES, tmp_path / "m.jpg")
    assert (tmp_path / "m.jpg").exists()


def test_without_mistakes_there_is_no_file(tmp_path):
    plot_mistakes([], [], NAMES, tmp_path / "m.jpg")
    assert not (tmp_path / "m.jpg").exists()
