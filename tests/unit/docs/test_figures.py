"""The figures of the pages are what their scripts draw, in both languages."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import cv2
import numpy as np
import pytest

from duet import backend

backend.use()

# The figures are drawn by code that is written with tensors.
from docs.figures.demo_plots import DOCS, PICTURES, draw_plots  # noqa: E402
from docs.figures.draw import FOLDER, LANGUAGES, draw, scripts  # noqa: E402
from tests.browser import install  # noqa: E402
from tests.browser.chromium import find_chromium  # noqa: E402
from tests.browser.screens import screens  # noqa: E402

FILES = {f"{name}.{language}.svg": (name, language) for name in scripts() for language in LANGUAGES}
# A unit of a figure is at most a pixel: coordinates are written to a tenth, and frameworks round
# differently.
UNITS = 0.2
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
MOST_BYTES = 300_000
PICTURE = re.compile(r"data:image/webp;base64,[\w+/=]+")  # compressed with loss


def test_figure_files_are_complete_without_extras():
    assert {path.name for path in FOLDER.glob("*.svg")} == set(FILES)


@pytest.mark.parametrize("file", FILES)
def test_stored_figures_match_their_scripts(file):
    texts = [
        PICTURE.sub("picture", text)
        for text in ((FOLDER / file).read_text(encoding="utf-8"), draw(*FILES[file]))
    ]
    stored, drawn = (NUMBER.sub("#", text) for text in texts)
    assert drawn == stored
    old, new = (np.array(NUMBER.findall(text), float) for text in texts)
    np.testing.assert_allclose(new, old, rtol=0, atol=UNITS)


def assert_alike(stored, drawn):
    """Equal but for what compression with loss changes."""
    assert stored.shape == drawn.shape
    blurred = (cv2.GaussianBlur(pixels, (9, 9), 0).astype(float) for pixels in (stored, drawn))
    assert abs(np.subtract(*blurred)).mean() < 1.0


@pytest.mark.skipif(backend.use() != "torch", reason="OneFlow's Matplotlib places panels otherwise")
def test_plots_on_pages_match_a_training(tmp_path):
    draw_plots(tmp_path)
    for drawn, stored in PICTURES.items():
        assert_alike(cv2.imread(str(DOCS / stored)), cv2.imread(str(tmp_path / drawn)))


def test_screenshots_on_pages_match_a_browser():
    if Path(find_chromium()).parent != install.folder():
        pytest.skip("another browser has other fonts: python3 -m tests.browser.install")
    made = screens()
    for name, pixels in made.items():
        assert_alike(cv2.imread(str(DOCS / name)), pixels)
    files = {path.name for path in DOCS.rglob("*.webp")}
    assert files == {*made, *PICTURES.values()}


def test_photographs_per_language_stay_below_300_kilobytes():
    files = [FOLDER / f"{name}.en.svg" for name in scripts()]
    texts = [file.read_text(encoding="utf-8") for file in files]
    found = [one for text in texts for one in PICTURE.findall(text)]
    assert sum(len(one) * 3 / 4 for one in found) < MOST_BYTES


@pytest.mark.parametrize("file", FILES)
def test_figure_has_a_title_and_loads_nothing_external(file):
    content = (FOLDER / file).read_text(encoding="utf-8")
    root = ElementTree.fromstring(content)
    assert root.find("{http://www.w3.org/2000/svg}title").text.strip()
    assert root.get("lang") == FILES[file][1]
    assert not re.search(r"<script|url\(|@import|https?://(?!www\.w3\.org/2000/svg)", content)
