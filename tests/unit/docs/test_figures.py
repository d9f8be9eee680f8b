"""The figures of the pages: up to date, small, safe, and read in both schemes and on a phone."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ElementTree
from functools import cache

import cv2
import numpy as np
import pytest

import backend

backend.use()

# The figures are drawn by code that is written with tensors.
from docs.figures import detect_shapes, drawing, found_shapes, precision_recall, ring, way  # noqa: E402
from docs.figures.draw import FOLDER, LANGUAGES, draw, main, names  # noqa: E402
from docs.figures.iou_family import FAMILY, gradient, values  # noqa: E402
from tests.browser.chromium import chromium  # noqa: E402
from tests.tiny_weights import CLASS_NAMES, write_tiny_weights  # noqa: E402
from utils.errors import UserError  # noqa: E402
from utils.files.json import read_json  # noqa: E402
from utils.files.project import PROJECT  # noqa: E402

FILES = [f"{name}.{language}.svg" for name in names() for language in LANGUAGES]
MAX_BYTES, MAX_BYTES_TOGETHER = 150_000, 3_000_000
PHONE_COLUMN, LEAST_LETTERS = 358, 11  # pixels: 390 less Material's margins of 16
# A unit of a figure is at most a pixel: coordinates are written to a tenth, and frameworks round
# differently. Pictures are compressed with loss; another processor may round them differently too.
UNITS, GREY_VALUES = 0.2, 2.0
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
SVG = "{http://www.w3.org/2000/svg}"


@cache
def stored(file: str) -> ElementTree.Element:
    return ElementTree.fromstring((FOLDER / file).read_text(encoding="utf-8"))


def difference(old: ElementTree.Element, new: ElementTree.Element) -> str:
    """What is not the same in two drawings; "" if they agree to UNITS and GREY_VALUES."""
    if (old.tag, (old.text or "").strip(), len(old), set(old.attrib)) != (
        new.tag, (new.text or "").strip(), len(new), set(new.attrib)
    ):  # fmt: skip
        return f"{old.tag} {old.text!r} {old.attrib} is now {new.tag} {new.text!r} {new.attrib}"
    for name, value in old.attrib.items():
        if not is_close(value, new.attrib[name]):
            return f"{old.tag} {name}: {value[:60]} is now {new.attrib[name][:60]}"
    return next(filter(None, map(difference, old, new)), "")


def is_close(old: str, new: str) -> bool:
    if old.startswith("data:") and new.startswith("data:"):
        pictures = [picture(value) for value in (old, new)]
        return (
            pictures[0].shape == pictures[1].shape
            and np.abs(pictures[0] - pictures[1]).mean() <= GREY_VALUES
        )
    numbers = [np.array(NUMBER.findall(value), float) for value in (old, new)]
    return (
        NUMBER.sub("0", old) == NUMBER.sub("0", new)
        and len(numbers[0]) == len(numbers[1])
        and bool((np.abs(numbers[0] - numbers[1]) <= UNITS).all())
    )


def picture(uri: str) -> np.ndarray:
    content = np.frombuffer(base64.b64decode(uri.partition(",")[2]), np.uint8)
    return cv2.imdecode(content, cv2.IMREAD_COLOR).astype(np.float64)


def test_there_is_a_file_of_each_figure_and_language_and_no_other():
    assert sorted(path.name for path in FOLDER.glob("*.svg")) == sorted(FILES)


@pytest.mark.parametrize("name", names())
def test_a_stored_figure_is_what_its_script_draws(name):
    for language in LANGUAGES:
        drawn = ElementTree.fromstring(draw(name, language))
        assert difference(stored(f"{name}.{language}.svg"), drawn) == ""


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ('<a x="1.2"/>', '<a x="1.3"/>', True),
        ('<a x="1.2"/>', '<a x="1.5"/>', False),
        ('<a d="M1 2L3 4"/>', '<a d="M1 2L3 4L5 6"/>', False),
        ("<a><b/></a>", "<a/>", False),
        ("<a>0.51</a>", "<a>0.52</a>", False),
        ('<a class="s-blue"/>', '<a class="s-red"/>', False),
    ],
)
def test_a_figure_that_has_changed_is_noticed(old, new, is_same):
    found = difference(ElementTree.fromstring(old), ElementTree.fromstring(new))
    assert (found == "") == is_same


@pytest.mark.parametrize("file", FILES)
def test_a_file_has_a_title_and_reaches_for_nothing_outside(file):
    root = stored(file)
    content = (FOLDER / file).read_text(encoding="utf-8")
    assert root.find(f"{SVG}title").text.strip()
    assert root.get("lang") == file.split(".")[1]
    assert {node.tag.removeprefix(SVG) for node in root.iter()} <= {
        "svg", "title", "style", "rect", "path", "circle", "text", "image", "a",
    }  # fmt: skip
    for node in root.iter():
        assert not any(name.lower().startswith("on") for name in node.attrib)
        if (target := node.get("href")) is not None:
            inside = target.startswith("data:image/webp;base64,")
            assert inside if node.tag == f"{SVG}image" else re.fullmatch(r"[\w/-]+\.html", target)
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", content)
    assert "\n\n" not in content  # Markdown would end an inline figure there


def test_files_are_small():
    sizes = {file: (FOLDER / file).stat().st_size for file in FILES}
    assert {file: size for file, size in sizes.items() if size > MAX_BYTES} == {}
    assert sum(sizes.values()) < MAX_BYTES_TOGETHER


@pytest.mark.parametrize("file", FILES)
def test_words_are_large_enough_on_a_phone_and_inside_the_figure(file):
    root = stored(file)
    _, _, width, height = map(float, root.get("viewBox").split())
    for node in root.iter(f"{SVG}text"):
        size = float(node.get("font-size", drawing.LETTERS))
        assert size * PHONE_COLUMN / width >= LEAST_LETTERS
        length = drawing.text_width(node.text, size)
        shown = (node.get("class") or "").split()
        part = 0.5 if "middle" in shown else 1 if "end" in shown else 0
        left = float(node.get("x")) - part * length
        assert left >= -1 and left + length <= width + 1, node.text
        assert size <= float(node.get("y")) + 4 and float(node.get("y")) <= height, node.text


def luminance(colour: np.ndarray) -> float:
    """Of sRGB (3,) from 0 to 1: WCAG 2.1."""
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("colours", [drawing.LIGHT, drawing.DARK], ids=["light", "dark"])
def test_colours_stand_out_in_both_schemes(colours):
    rgb = {
        name: np.array([int(value[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        for name, value in colours.items()
    }
    for name in ("ink", "soft", *drawing.HUES):
        assert contrast(rgb[name], rgb["paper"]) >= 4.5, name  # text: WCAG 1.4.3
    assert contrast(rgb["line"], rgb["paper"]) >= 3  # lines: 1.4.11
    for hue in (*drawing.HUES, "line"):
        tint = 0.15 * rgb[hue] + 0.85 * rgb["paper"]
        for name in ("ink", "soft"):
            assert contrast(rgb[name], tint) >= 4.5, (name, hue)


def test_a_figure_takes_its_dark_colours_where_the_page_asks_for_them():
    for file in FILES:
        inline = file.startswith("way.")
        assert stored(file).get("id") == (None if inline else "only-dark")
        assert "[data-md-color-scheme=slate] .figure" in stored(file).find(f"{SVG}style").text


def test_a_browser_shows_one_file_in_both_schemes(tmp_path):
    file = FOLDER / "iou.en.svg"
    shown = {}
    for scheme, ground in (("light", "#ffffff"), ("dark", "#000000")):
        page = tmp_path / f"{scheme}.html"
        image = f'<img src="{file.as_uri()}#only-{scheme}" alt="" width="390">'
        page.write_text(f'<body style="margin:0;background:{ground}">{image}', encoding="utf-8")
        with chromium() as opened:
            opened.open(page, 390)
            opened.screenshot(tmp_path / f"{scheme}.png")
            assert opened.complaints() == []
        shown[scheme] = cv2.imread(str(tmp_path / f"{scheme}.png"), cv2.IMREAD_GRAYSCALE)
    ink = shown["light"] < 60  # words, on white
    assert ink.sum() > 200
    assert (shown["dark"][ink] > 190).mean() > 0.9  # the same words, on what is behind the figure
    assert np.median(shown["light"]) == 255 and np.median(shown["dark"]) == 0


def test_each_box_of_the_clickable_figure_is_a_link_that_names_a_file():
    for language in LANGUAGES:
        links = list(stored(f"way.{language}.svg").iter(f"{SVG}a"))
        assert len(links) == len(way.LOSS_STOPS) + len(way.OPERATION_STOPS)
        for link, stop in zip(links, (*way.LOSS_STOPS, *way.OPERATION_STOPS), strict=True):
            assert stop.path in "".join(link.itertext()) and (PROJECT / stop.path).exists()
            assert link.get("href") == f"{stop.page}.html"


def test_an_unknown_figure_is_refused(monkeypatch):
    monkeypatch.setattr("sys.argv", ["draw", "../train"])
    with pytest.raises(UserError, match="^no figure '../train'; there are: anchor_cells, "):
        main()


@pytest.fixture
def detecting(monkeypatch, tmp_path):
    """Runs the command on weights; returns the file that it writes, which is not the stored one."""

    def run(weights):
        monkeypatch.setattr(detect_shapes, "DETECTIONS", tmp_path / "detections.json")
        monkeypatch.setattr("sys.argv", ["detect_shapes", str(weights)])
        detect_shapes.main()
        return detect_shapes.DETECTIONS

    return run


def test_images_without_detections_make_a_figure_too(detecting, monkeypatch, tmp_path):
    monkeypatch.setattr(detect_shapes, "CLASS_NAMES", CLASS_NAMES)  # theirs
    monkeypatch.setattr(detect_shapes, "CONFIDENCE", 1.0)
    written = detecting(write_tiny_weights(tmp_path))
    assert read_json(written)["images"] == {"400": [], "401": [], "402": []}
    monkeypatch.setattr(found_shapes, "DETECTIONS", written)
    root = ElementTree.fromstring(found_shapes.draw("en").svg())
    assert len(root.findall(f"{SVG}image")) == 3 and root.findall(f"{SVG}text") == []


def test_weights_of_other_classes_are_refused(detecting, tmp_path):
    with pytest.raises(UserError, match="its classes are .* give weights that are trained with"):
        detecting(write_tiny_weights(tmp_path))


def test_a_ring_of_four_ends_with_all_sums_everywhere():
    states = ring.states()
    assert len(states) == 7  # the start and 2 (N - 1) steps
    assert (states[3][0] == 4).sum() == 4 and (states[-1][0] == 4).all()
    assert all(received.sum() == 4 for _, received in states[1:])  # a part of M / 4 a rank and step


def test_the_curve_is_of_the_example_on_its_page():
    example = (PROJECT / "docs/blocks/map_match.out").read_text(encoding="utf-8")
    rows = re.findall(r"score ([\d.]+): (right|wrong)", example.partition("threshold 0.75")[0])
    assert [float(score) for score, _ in rows] == list(precision_recall.SCORES)
    assert [word == "right" for _, word in rows] == list(precision_recall.HITS)
    stated = read_json(PROJECT / "docs/blocks/map_curve.json")["ap50"]
    assert f"{precision_recall.envelope().mean():.4f}" == stated


def test_the_measures_are_what_the_papers_define():
    """Two squares of side 2, the second moved by 3: hull 5 x 2, no overlap."""
    pred, target = np.array([[1.0, 1, 2, 2]]), np.array([[4.0, 1, 2, 2]])
    found = {name: float(value[0]) for name, value in values(pred, target).items()}
    assert found["IoU"] == 0
    assert found["GIoU"] == pytest.approx(-(10 - 8) / 10, abs=1e-6)
    assert found["DIoU"] == found["CIoU"] == pytest.approx(-9 / 29, abs=1e-6)


def test_boxes_apart_have_a_gradient_under_all_measures_but_iou():
    pred, target = np.array([[1.0, 1, 2, 2]]), np.array([[4.0, 1, 2, 2]])
    moved = {name: gradient(name, pred, target)[0, 0] for name in FAMILY}
    assert moved["IoU"] == 0
    assert all(moved[name] < 0 for name in ("GIoU", "DIoU", "CIoU"))  # to the right
