"""Pages: text stays text, crops show what they should, a browser loads nothing else."""

import base64
import re

import cv2
import numpy as np
import pytest

from duet.utils.data.crops import LONG_SIDE, Crop, around, crop_grid
from duet.utils.files.html import bullets, html_page, paragraph, section, table, text
from tests.browser.chromium import chromium

RED, BLUE = (200, 30, 30), (10, 20, 200)
HOSTILE = "a\x1b[2J<script>alert(1)</script>\"' onload=x\u202eb\udce9"


def image_of(height, width):
    return np.full((height, width, 3), BLUE, np.uint8)


def decoded(crop):
    """The image of a crop, RGB."""
    content = base64.b64decode(re.search(r"base64,([^\"]+)", crop_grid([crop]))[1])
    return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)[..., ::-1].astype(int)


def is_near(pixel, colour):
    return abs(pixel - colour).max() < 60


def test_crop_keeps_the_image_colours():
    image = image_of(480, 1280)
    image[:, 640:] = (250, 250, 0)
    shown = decoded(Crop(image, "a", "b"))
    assert shown.shape == (LONG_SIDE * 480 // 1280, LONG_SIDE, 3)
    assert is_near(shown[120, 80], BLUE) and is_near(shown[120, 560], (250, 250, 0))


def test_box_lies_on_its_object_in_a_view():
    """The view is 300 to 600 both ways, and 640 pixels wide."""
    box = (400, 400, 500, 500)
    shown = decoded(Crop(image_of(1000, 1000), "a", "b", [(box, RED)], focus=box))
    assert shown.shape == (LONG_SIDE, LONG_SIDE, 3)
    for x, y in ((213, 320), (427, 320), (320, 213), (320, 427)):
        assert is_near(shown[y, x], RED)
    assert is_near(shown[320, 320], BLUE) and is_near(shown[180, 180], BLUE)


@pytest.mark.parametrize(
    ("box", "view"),
    [
        ((400, 400, 500, 500), (300, 300, 600, 600)),  # a side of 3 times the object's
        ((0, 400, 100, 500), (0, 300, 300, 600)),  # moved into the image
        ((950, 400, 1050, 500), (700, 300, 1000, 600)),
        ((500, 500, 502, 502), (469, 469, 533, 533)),  # not less than 64 pixels
        ((float("nan"),) * 4, (0, 0, 64, 64)),
        ((-1e300, 5, 1e300, 9), (0, 0, 1000, 1000)),
    ],
)
def test_focus_view_is_a_square_within_the_image(box, view):
    assert around(box, (1000, 1000)) == view
    assert decoded(Crop(image_of(40, 60), "a", "b", [(box, RED)], focus=box)).size


def whole_page():
    crops = [Crop(image_of(60, 200), HOSTILE, HOSTILE), Crop(None, "x" * 300, "no such file")]
    blocks = [
        paragraph(HOSTILE),
        section(HOSTILE, crop_grid(crops), bullets([HOSTILE, "y" * 300])),
        section("t", table(["name", "images"], [[HOSTILE, "3"], ["z" * 200, "1,000"]]), level=3),
    ]
    return html_page(HOSTILE, blocks)


def test_foreign_text_is_escaped():
    page = whole_page()
    assert "<script" not in page and 'onload=x"' not in page and "\x1b" not in page
    assert r"a\x1b[2J&lt;script&gt;" in page and r"\u202eb\xe9" in page
    assert text('<a href="x">') == "&lt;a href=&quot;x&quot;&gt;"
    assert paragraph("") == crop_grid([]) == ""


def test_browser_shows_the_page_at_any_width(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(whole_page(), encoding="utf-8")
    with chromium() as browser:
        for width, dark in ((390, False), (1280, True)):
            browser.open(path, width, dark=dark)
            assert browser.complaints() == [] and browser.requested()[0] == path.as_uri()
            assert not [url for url in browser.requested()[1:] if not url.startswith("data:")]
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            assert browser.evaluate("document.querySelector('.crop img').naturalWidth") == LONG_SIDE
            background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (background == "rgb(255, 255, 255)") != dark
