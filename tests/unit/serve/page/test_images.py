"""An image on the page: what is sent, found, drawn, listed and copied."""

import json

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.serve_answers import FOUND, MODELS, SHOWN, answering, detection, write_image
from tests.serve_stand_in import as_json
from utils.drawing.colours import NUM_COLOURS, class_colour, ink_on


def test_a_file_is_sent_as_it_is_and_what_is_found_is_told_drawn_and_listed(page, site, image):
    said = page.choose(image)
    assert said == f"4 found: 1 person, 1 bus, 1 {SHOWN}, 1 三角."
    assert site.asked[0].body == image.read_bytes()
    assert site.asked[0].query == {"model": "day", "conf": "0.01", "iou": "1", "max_det": "5000"}
    assert page.rows() == ["person 0.90", "bus 0.80", f"{SHOWN} 0.60", "三角 0.40"]
    expected = [[side / 200 for side in found["box_xyxy"]] for found in FOUND[:4]]
    assert np.allclose(page.boxes(), expected, atol=0.003)  # of 320 pixels
    times = page.evaluate("times.innerText")
    assert "20.3 ms" in times and "round trip" in times
    assert page.page.complaints() == []


@pytest.mark.parametrize("how", ["drop", "paste"])
def test_a_file_may_be_dropped_or_pasted(page, site, image, how):
    assert page.give(image, how).startswith("4 found")
    assert site.asked[0].body == image.read_bytes()


def test_text_that_is_dropped_is_answered_with_what_to_drop(page):
    page.evaluate(
        "document.body.dispatchEvent(new DragEvent('drop', { bubbles: true, "
        "dataTransfer: new DataTransfer() }))"
    )
    assert page.problem().startswith("That was no file.")


def test_the_filter_hides_a_class_and_keeps_its_count(page, image):
    page.choose(image)
    page.set("confidence", 0.2)
    page.set("overlap", 1.0)
    page.evaluate("document.querySelector('#classes [data-class=\"0\"] input').click()")
    assert page.rows() == ["bus 0.80", f"{SHOWN} 0.60", "三角 0.40"]
    shown = "[...document.querySelectorAll('#classes .number')].map((each) => each.textContent)"
    assert page.evaluate(shown) == ["2", "1", "1", "1"]
    assert page.said().startswith("3 found")


def test_what_is_copied_is_what_is_shown(page, image):
    page.choose(image)
    page.set("confidence", 0.5)
    copied = page.copied()
    records = [{**found} for found in FOUND[:3]]
    for record in records:
        del record["network_xyxy"]
    assert copied["detections"] == records and copied["image"] == {"width": 200, "height": 200}
    assert copied["thresholds"] == {"conf": 0.5, "iou": 0.45, "agnostic": False}


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_a_turned_photo_is_shown_as_the_server_sees_it(page, site, tmp_path, suffix):
    path = tmp_path / f"turned.{suffix}"
    pixels = np.zeros((60, 100, 3), np.uint8)
    pixels[:, :50] = (250, 0, 0)  # the left half as it is stored, the upper one as it is seen
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(path, exif=exif, quality=95)
    site.answer = answering([detection([0, 0, 60, 50], 0.9)], width=60, height=100)
    page.choose(path)
    assert len(site.asked) == 1
    at = "Array.from(image.getContext('2d').getImageData(30, %d, 1, 1).data)"
    assert page.evaluate(at % 25)[0] > 200 and page.evaluate(at % 75)[0] < 50
    assert page.evaluate("image.width / image.height") == 0.6
    assert np.allclose(page.boxes(), [[0, 0, 1, 0.5]], atol=0.01)


def test_the_server_shows_what_the_browser_cannot(page, site, tmp_path):
    cv2.imwrite(str(tmp_path / "scan.tiff"), np.zeros((120, 90, 3), np.uint8))
    site.answer = answering(FOUND[:1], width=90, height=120)
    page.choose(tmp_path / "scan.tiff")
    assert [asked.accept for asked in site.asked] == ["application/json", "image/jpeg"]
    assert site.asked[1].query == {"model": "day", "conf": "1"}
    pixel = page.evaluate("Array.from(image.getContext('2d').getImageData(5, 5, 1, 1).data)")
    assert pixel == [30, 200, 10, 255]


def test_a_large_image_is_drawn_smaller_and_boxes_stay_true(page, site, tmp_path):
    path = write_image(tmp_path / "large.jpg", 2000, 6000)
    boxes = [[300, 200, 600, 400], [5990, 1990, 6000, 2000]]
    site.answer = answering([detection(box, 0.5) for box in boxes], 6000, 2000)
    page.choose(path)
    assert page.evaluate("[image.width, image.height]") == [2048, 683]
    expected = np.array(boxes) / (6000, 2000, 6000, 2000)
    assert np.allclose(page.boxes(), expected, atol=0.004)  # a pixel of the screen


def test_an_image_of_one_pixel_can_be_seen(page, site, tmp_path):
    site.answer = answering([detection([0, 0, 1, 1], 0.5)], 1, 1)
    assert page.choose(write_image(tmp_path / "pixel.png", 1, 1)).startswith("1 found")
    assert page.evaluate("document.querySelector('#view').getBoundingClientRect().width") == 320


def test_300_boxes_are_listed_and_labels_do_not_cover_each_other(page, site, image):
    boxes = [[x, y, x + 8, y + 8] for y in range(0, 195, 13) for x in range(0, 200, 10)]
    found = [detection(box, 0.9 - index / 1000) for index, box in enumerate(boxes)]
    site.answer = answering(found)
    assert page.choose(image) == "300 found: 300 person."
    assert len(page.rows()) == len(page.boxes()) == 300
    plates = page.evaluate(
        "[...document.querySelectorAll('.label:not(.spare) rect')].map((plate) => "
        "{ const { left, top, right, bottom } = plate.getBoundingClientRect(); "
        "return [left, top, right, bottom]; })"
    )
    assert len(plates) > 3
    for one, (left, top, right, bottom) in enumerate(plates):
        for left2, top2, right2, bottom2 in plates[:one]:
            covers = min(right, right2) - max(left, left2) > 0.5
            assert not (covers and min(bottom, bottom2) - max(top, top2) > 0.5)


def test_nothing_found_is_said(page, site, image):
    site.answer = answering([])
    assert page.choose(image) == "Nothing found with these settings."
    assert page.rows() == [] and not page.evaluate("copy.disabled")


def test_outlines_of_objects_are_drawn(page, site, image):
    site.models = MODELS[1:2]
    site.answer = answering(
        [detection([10, 10, 50, 60], 0.9, outline=[[10, 10], [49, 10], [49, 59]])]
    )
    page.open()
    page.choose(image)
    assert page.evaluate("document.querySelector('.outline').getAttribute('points')") == (
        "10.5,10.5 49.5,10.5 49.5,59.5"
    )
    assert site.asked[0].query["conf"] == "0.1"  # masks of what is never shown cost time


def test_classes_of_an_image_have_no_thresholds(page, site, image):
    site.models = MODELS[2:]
    classes = [{"score": 0.75, "class_index": 3, "name": "étoile"},
               {"score": 0.25, "class_index": 4, "name": "三角"}]  # fmt: skip
    site.answer = answering([], classes=classes)
    found = json.loads(site.answer(type("Asked", (), {"accept": "application/json"})).body)
    del found["detections"]
    site.answer = lambda asked: as_json(found)
    page.open()
    assert page.choose(image) == "étoile, with a probability of 0.75."
    assert page.rows() == ["étoile 0.750", "三角 0.250"]
    assert page.evaluate("thresholds.hidden && filter.hidden")
    assert site.asked[0].query == {"model": "kinds"}
    assert page.copied() == {**found, "milliseconds": page.copied()["milliseconds"]}


def test_colours_are_those_of_detect(page, site, image):
    count = NUM_COLOURS
    found = [
        {"box_xyxy": [i, 0, i + 1, 9], "score": 0.9, "class_index": i, "name": str(i)}
        for i in range(count)
    ]
    site.answer = answering(found)
    page.choose(image)
    swatches = page.evaluate(
        "[...document.querySelectorAll('#list .swatch')].map((each) => "
        "getComputedStyle(each).backgroundColor)"
    )
    assert swatches == ["rgb({}, {}, {})".format(*class_colour(index)) for index in range(count)]
    inks = page.evaluate(
        "[...document.querySelectorAll('.label text')].map((each) => getComputedStyle(each).fill)"
    )
    expected = ["rgb({}, {}, {})".format(*ink_on(class_colour(index))) for index in range(count)]
    assert inks == expected
