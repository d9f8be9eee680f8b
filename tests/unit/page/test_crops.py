"""Crops with boxes: what they show, where their boxes lie, how many bytes they take."""

import base64
import re

import cv2
import numpy as np
import pytest

from tests.browser.chromium import chromium
from utils.page.blocks import Bar as BarRow
from utils.page.blocks import Card, bars, bullets, cards, code, folded, prose, section, table, text
from utils.page.crops import LONG_SIDE, MAX_BOXES, Box, CropSheet, View, around, crop_grid
from utils.page.document import html_page

RED, GREEN = (200, 30, 30), (0, 255, 0)
HOSTILE = "a\x1b[2J<script>alert(1)</script>\"' onload=x\u202eb\udce9"


def image_of(height, width, colour=(10, 20, 200)):
    return np.full((height, width, 3), colour, np.uint8)


def decoded(crop):
    """The image of a crop, RGB."""
    content = base64.b64decode(re.search(r"base64,([^\"]+)", crop)[1])
    return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]


def numbers(crop, tag, *names):
    found = re.search(f"<{tag}[^>]*>", crop)[0]
    return [float(re.search(rf'\b{name}="([-\d.]+)"', found)[1]) for name in names]


def test_a_crop_shows_the_image_in_its_own_colours_no_larger_than_it_must_be():
    image = image_of(480, 1280)
    image[:, 640:] = (250, 250, 0)
    shown = decoded(CropSheet().crop(image, [], "x"))
    assert shown.shape == (LONG_SIDE * 480 // 1280, LONG_SIDE, 3)
    left, right = shown[60, 40].astype(int), shown[60, 280].astype(int)
    assert abs(left - (10, 20, 200)).max() < 12 and abs(right - (250, 250, 0)).max() < 12


def test_a_box_lies_on_its_object_in_a_view():
    crop = CropSheet().crop(
        image_of(1000, 1000), [Box((300, 400, 500, 480), RED)], "x", view=View(200, 200, 840, 840)
    )
    assert numbers(crop, "rect", "x", "y", "width", "height") == [50, 100, 100, 40]
    assert numbers(crop, "image", "x", "y", "width", "height") == [0, 0, 320, 320]


def test_a_view_over_the_edge_leaves_the_place_beside_the_image_empty():
    crop = CropSheet().crop(image_of(100, 100), [], "x", view=View(-50, -10, 100, 110))
    assert numbers(crop, "image", "x", "y", "width", "height") == [50, 10, 100, 100]
    assert decoded(crop).shape == (100, 100, 3)


@pytest.mark.parametrize(
    ("box", "view"),
    [
        ((400, 400, 500, 500), (300, 300, 600, 600)),  # a side of 3 times the object's
        ((0, 400, 100, 500), (0, 300, 300, 600)),  # moved into the image
        ((900, 900, 1000, 1000), (700, 700, 1000, 1000)),
        ((500, 500, 502, 502), (469, 469, 533, 533)),  # not less than 64 pixels
        ((0, 0, 1000, 1000), (0, 0, 1000, 1000)),
        ((950, 400, 1050, 500), (760, 300, 1060, 600)),  # over the edge only as far as the box
    ],
)
def test_the_surroundings_of_an_object_are_a_square_in_the_image(box, view):
    assert tuple(around(box, (1000, 1000))) == view


@pytest.mark.parametrize("box", [(float("nan"),) * 4, (-1e300, 5, 1e300, 9), (9, 9, 1, 1)])
def test_a_box_that_is_none_is_no_crash(box):
    view = around(box, (40, 60))
    assert view.left < view.right <= 60 * 3 and view.top < view.bottom <= 40 * 3
    crop = CropSheet().crop(image_of(40, 60), [Box(box, RED)], "x", view=view)
    assert "nan" not in crop and "e+" not in crop


def test_dashed_lines_and_names_are_told_apart():
    boxes = [Box((1, 1, 9, 9), RED, "label", True), Box((2, 2, 8, 8), GREEN, "box")]
    crop = CropSheet().crop(image_of(20, 20), boxes, "title")
    assert (
        crop.count("line dashed") == crop.count("edge dashed") == 1
        and crop.count('class="line"') == 1
    )
    assert "rgb(200,30,30)" in crop and "rgb(0,255,0)" in crop
    assert 'aria-label="title: label, box"' in crop


def test_a_box_without_an_area_is_seen_and_the_first_box_lies_on_top():
    boxes = [Box((50, 50, 50, 50), RED), Box((80, 60, 40, 20), GREEN)]
    crop = CropSheet().crop(image_of(100, 100), boxes, "x")
    assert numbers(crop, "rect", "x", "y", "width", "height") == [40, 20, 40, 40]
    last = crop[crop.rindex("<g ") :]
    assert "rgb(200,30,30)" in last
    assert numbers(last, "rect", "x", "y", "width", "height") == [48, 48, 4, 4]


def test_flags_and_names_are_set_apart_in_prose():
    assert prose("add --img 640 to `names` <b> or a--b") == (
        'add <code class="flag">--img</code> 640 to <code>names</code> &lt;b&gt; or a--b'
    )


def test_the_bytes_of_all_crops_and_the_boxes_of_one_are_bounded():
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 255, (300, 300, 3), dtype=np.uint8)
    sheet = CropSheet(200_000)
    boxes = [Box((5, 5, 9, 9), RED)] * 5000
    crops = [sheet.crop(noise, boxes, f"{number}") for number in range(30)]
    kept = [crop for crop in crops if crop]
    assert kept == crops[: len(kept)] and 0 < len(kept) < 30
    assert sum(map(len, kept)) <= 200_000 and sheet.left_out == 30 - len(kept)
    assert kept[0].count('class="line"') == MAX_BOXES
    assert sheet.without_image("late") == "" and crop_grid(crops[-1:]) == ""


def whole_page():
    sheet = CropSheet()
    crops = [
        sheet.crop(image_of(60, 200), [Box((20, 10, 90, 50), RED, HOSTILE)], HOSTILE, [HOSTILE]),
        sheet.crop(image_of(200, 60), [Box((-9, 10, 90, 50), GREEN, "b", True)], "x" * 300),
        sheet.without_image("gone.jpg", ["no such file"]),
    ] * 3
    blocks = [
        cards([Card("3", HOSTILE, HOSTILE)]),
        section(HOSTILE, crop_grid(crops), bullets([HOSTILE, "y" * 300]), anchor="one"),
        section("t", table(["name", "images"], [[HOSTILE, "3"], ["z" * 200, "1,000"]], "names")),
        section("c", code(f"python -m x\n{HOSTILE}"), folded("all", bullets(["a"], ordered=True))),
        section("b", bars([BarRow(HOSTILE, 0.25, "25 %"), BarRow("full", 1.0, "100 %")])),
        section("an empty section"),
    ]
    return html_page(HOSTILE, blocks)


def test_text_from_outside_stays_text():
    page = whole_page()
    assert "<script" not in page and 'onload=x"' not in page and "\x1b" not in page
    assert r"a\x1b[2J&lt;script&gt;" in page and r"\u202eb\xe9" in page
    assert "an empty section" not in page
    assert text('<a href="x">') == "&lt;a href=&quot;x&quot;&gt;"


@pytest.fixture(scope="module")
def browser():
    with chromium() as page:
        yield page


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_the_page_at_any_width(browser, tmp_path, width, dark):
    path = tmp_path / "page.html"
    path.write_text(whole_page(), encoding="utf-8")
    browser.open(path, width, dark=dark)
    assert browser.complaints() == [] and browser.requested()[0] == path.as_uri()
    assert not [url for url in browser.requested()[1:] if not url.startswith("data:")]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    loaded = browser.evaluate(
        "[...document.querySelectorAll('.crop image')].map(e => e.getBoundingClientRect().width)"
    )
    assert len(loaded) == 6 and min(loaded) > 30
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") != dark
    halves = browser.evaluate(
        "[...document.querySelectorAll('.bar')].map(e => e.querySelector('rect')"
        ".getBoundingClientRect().width / e.getBoundingClientRect().width)"
    )
    assert halves == pytest.approx([0.25, 1.0], abs=0.01)
