"""What the page asks of its server and of the browser, and what it says where that is refused."""

import cv2
import numpy as np
import pytest

from tests.serve_answers import FOUND, HOSTILE, MODELS, SHOWN, answering, detection, write_image
from tests.serve_stand_in import Told, as_json, refusal


def test_a_token_is_asked_for_and_kept_in_memory_alone(page, site, image):
    site.token = "correct-horse"
    page.open()
    for word in ("wrong", "correct-horse"):
        page.until("document.querySelector('dialog').open")
        reason = page.evaluate("document.querySelector('#token-reason').textContent")
        assert ("does not know this token" in reason) is (word != "wrong")
        page.evaluate(
            "window.isClosed = false; document.querySelector('dialog').addEventListener('close', "
            f"() => {{ isClosed = true; }}); token.value = '{word}'; "
            "document.querySelector('[value=use]').click()"
        )
        page.until("isClosed")
    page.until("model.textContent")
    assert page.choose(image).startswith("4 found")
    assert site.asked[-1].token == "Bearer correct-horse"
    kept = "JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location])"
    assert "horse" not in page.evaluate(kept + " + document.documentElement.outerHTML")


def test_without_a_token_the_page_says_what_is_missing(page, site, image):
    site.token = "correct-horse"
    page.open()
    page.until("document.querySelector('dialog').open")
    page.evaluate("document.querySelector('dialog [value=\"\"]').click()")
    assert page.until("problem.textContent").startswith("This server needs a token.")


def test_a_busy_server_is_asked_again_when_it_says(page, site, image):
    found = answering(FOUND)
    busy = [refusal(429, "busy", ("Retry-After", "0")), refusal(503, "x", ("Retry-After", "0"))]
    site.answer = lambda asked: busy.pop() if busy else found(asked)
    page.evaluate(
        "window.heard = []; new MutationObserver(() => heard.push(said.textContent))"
        ".observe(said, { childList: true })"
    )
    assert page.choose(image).startswith("4 found")
    assert len(site.asked) == 3
    assert "The server is busy. Attempt 2 of 5 in 0 s …" in page.evaluate("heard")


def test_a_server_that_stays_busy_is_left_in_peace(page, site, image):
    site.answer = lambda asked: refusal(429, "64 requests wait already", ("Retry-After", "0"))
    assert page.choose(image) == "64 requests wait already" == page.problem()
    assert len(site.asked) == 5


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (refusal(415, "not an image; JPEG, PNG ... are accepted"), "not an image; JPEG"),
        (Told(b"<html>Bad gateway", 502, "text/html"), "The server answered 502 Bad Gateway."),
        (Told(b"<html>Log in", 200, "text/html"), "What answered is not this server"),
        (as_json({"error": "x"}, 500), "The server answered 500 Internal Server Error."),
    ],
)
def test_errors_are_sentences_and_no_older_boxes_stay(page, site, image, told, sentence):
    page.choose(image)
    site.answer = lambda asked: told
    assert page.give(image, "drop").startswith(sentence)
    assert page.rows() == [] and page.boxes() == []
    assert page.evaluate("copy.disabled && download.disabled")


def test_foreign_text_stays_text(page, site, tmp_path):
    site.models = [{**MODELS[0], "name": HOSTILE, "runs_in": HOSTILE}]
    site.answer = answering(FOUND, milliseconds={})
    page.open()
    page.choose(write_image(tmp_path / "<img src=x onerror=alert(1)> é.png"))
    for place in ("model", "classes", "list"):
        assert SHOWN in page.evaluate(f"{place}.textContent")
    drawn = "[...document.querySelectorAll('.label text')].map((each) => each.textContent)"
    assert f"{SHOWN[:30]}… 0.60" in page.evaluate(drawn)
    site.answer = lambda asked: refusal(400, HOSTILE)
    page.choose(write_image(tmp_path / "b.png"))
    assert page.problem() == SHOWN
    assert page.evaluate("document.querySelectorAll('img, b').length") == 0
    assert page.evaluate("document.title") == "Duet: try the model"


def test_the_server_draws_the_image_that_is_downloaded(page, site, image):
    page.choose(image)
    page.set("confidence", 0.5)
    page.evaluate("document.querySelector('#classes [data-class=\"1\"] input').click()")
    page.evaluate(
        "HTMLAnchorElement.prototype.click = function () { window.saved = this.download }"
    )
    page.evaluate("download.click()")
    assert page.until("window.saved") == "image-found.png"
    asked = site.asked[-1]
    assert asked.accept == "image/png" and asked.body == image.read_bytes()
    assert asked.query == {
        "model": "day", "conf": "0.5", "iou": "0.45", "max_det": "1000", "agnostic": "false",
        "classes": "0,2,3,4",
    }  # fmt: skip


def test_another_model_is_asked_about_the_same_image(page, site, image):
    site.models = MODELS
    page.open()
    page.choose(image)
    page.evaluate(
        "document.querySelector('select').selectedIndex = 1; "
        "document.querySelector('select').dispatchEvent(new Event('change'))"
    )
    assert page.done().startswith("4 found")
    assert [asked.query["model"] for asked in site.asked] == ["day", HOSTILE]
    assert site.asked[0].body == site.asked[1].body


def test_thresholds_begin_with_those_of_the_server(page, site, image):
    site.models = [{**MODELS[0], "defaults": {"conf": 0.5, "iou": 0.3, "max_det": 2}}]
    page.open()
    page.until("model.textContent")
    assert page.evaluate("[confidence.value, overlap.value]") == ["0.5", "0.3"]
    page.choose(image)
    assert page.rows() == ["person 0.90", "bus 0.80"]


# Stands in for a camera: 64 x 48 pixels of green.
CAMERA = """navigator.mediaDevices.getUserMedia = async () => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [64, 48];
  const context = canvas.getContext("2d");
  window.drawing = setInterval(() => { context.fillStyle = "lime";
    context.fillRect(0, 0, 64, 48); }, 10);
  return window.stream = canvas.captureStream(30);
};"""


def test_the_camera_sends_a_frame_when_the_last_one_is_answered(page, site):
    site.answer = answering([detection([8, 6, 56, 42], 0.9)], 64, 48)
    page.evaluate(CAMERA)
    page.evaluate("camera.click()")
    page.until("times.innerText && said.textContent.startsWith('1 found')")
    asked = len(site.asked)
    while len(site.asked) < asked + 3:
        page.until("said.textContent")
    frame = cv2.imdecode(np.frombuffer(site.asked[-1].body, np.uint8), cv2.IMREAD_COLOR)
    assert frame.shape == (48, 64, 3) and frame[24, 32, 1] > 200 > 100 > frame[24, 32, 2]
    assert np.allclose(page.boxes(), [[1 / 8] * 2 + [7 / 8] * 2], atol=0.01)
    page.evaluate("freeze.click()")
    assert page.evaluate("stream.active") is False
    assert page.rows() == ["person 0.90"] and page.evaluate("camera.textContent") == "Camera"


@pytest.mark.parametrize(
    ("camera", "sentence"),
    [
        ("delete Navigator.prototype.mediaDevices", "Browsers give the camera only to pages from"),
        ("navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('x', "
         "'NotAllowedError') }", "The browser may not use the camera."),
        ("navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('x', "
         "'NotFoundError') }", "This device has no camera."),
    ],
)  # fmt: skip
def test_a_camera_that_cannot_be_had_is_explained(page, camera, sentence):
    page.evaluate(camera)
    page.evaluate("camera.click()")
    assert page.until("problem.textContent").startswith(sentence)


def test_a_model_that_is_being_started_is_waited_for(page, site, image):
    site.models = [{"name": "day", "ready": False}]
    page.open()
    page.until("said.textContent.includes('is being started')")
    site.models = MODELS[:1]
    page.until("model.textContent.includes('5 classes')")
    assert page.choose(image).startswith("4 found")
