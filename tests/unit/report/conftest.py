"""Font folders that hold what a test says, in place of this machine's; figures unsaved."""

from pathlib import Path
from typing import Any

import cv2
import matplotlib
import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTFont

from duet.utils.evaluation.coco.metric import DetectionEvaluator, EvaluationResult
from duet.utils.report import drawing as fonts
from tests.coco_reference import detections, ground_truth

DEJAVU = Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf")


def use_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Use only DejaVu and the fonts of a folder; call `forget_fonts` afterwards."""
    monkeypatch.setattr(
        fonts, "font_files", lambda: (str(DEJAVU), *sorted(map(str, folder.glob("*.*"))))
    )
    forget_fonts()


def forget_fonts() -> None:
    """Empty what is kept of fonts and of what they drew."""
    for name in ("characters_of", "font_for", "drawable_name", "sized", "advise_fonts"):
        getattr(fonts, name).cache_clear()


def make_font(characters: str, family: str = "Stand-in") -> TTFont:
    """A font in which each character is a black square of 0.8 by 0.8 em on the baseline."""
    names = [".notdef", *(f"square{number}" for number in range(len(characters)))]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap(dict(zip(map(ord, characters), names[1:], strict=True)))
    pen = TTGlyphPen(None)
    pen.moveTo((100, 0))
    for corner in ((100, 800), (900, 800), (900, 0)):
        pen.lineTo(corner)
    pen.closePath()
    builder.setupGlyf(dict.fromkeys(names, pen.glyph()))
    builder.setupHorizontalMetrics({name: (1000, 100) for name in names})
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=900)
    builder.setupPost()
    return builder.font


@pytest.fixture
def only_dejavu(tmp_path, monkeypatch):
    """A machine whose one font has Latin, Greek and Cyrillic letters."""
    folder = tmp_path / "fonts"
    folder.mkdir()
    use_folder(monkeypatch, folder)
    yield folder
    forget_fonts()


# Of plots.

NAMES = ["cell", r"$\bad$ formula", "红细胞"]


def read_rgb(path: Path) -> np.ndarray:
    return cv2.imread(str(path))[:, :, ::-1].astype(int)


def result_of(class_names: list[str], objects: list[int] | None = None) -> EvaluationResult:
    """A result of images with one object each, found with score 0.5: one image a class, or so
    many as `objects` says of each.
    """
    box = [[0, 0, 9, 9]]
    evaluator = DetectionEvaluator(class_names)
    numbers = [1] * len(class_names) if objects is None else objects
    for place, index in enumerate(np.repeat(np.arange(len(class_names)), numbers)):
        evaluator.add(place, detections(box, [0.5], [index]), ground_truth([index], box))
    return evaluator.result()


def kept_figures(monkeypatch: Any, module: Any) -> dict[str, Any]:
    """Have a module keep its figures by file name in place of writing them."""
    kept: dict[str, Any] = {}
    monkeypatch.setattr(
        module, "save_figure", lambda figure, path, **_: kept.update({path.name: figure})
    )
    return kept


def texts_of(artists: Any) -> list[str]:
    return [text.get_text() for text in artists]
