"""What a server finds in images is what the same weights find in another program."""

import io
import json
from concurrent.futures import ThreadPoolExecutor

import cv2
import pytest
from PIL import Image

from duet import load
from duet.utils.serve import app
from tests.small import CLASS_NAMES, noise
from tests.unit.serve.conftest import DETECT, SIZE, image_file

SIZES = [(64, 96), (96, 64), (64, 64), (30, 200)]
IMAGES = [image_file(*size) for size in SIZES]


def answer_of(server, image=IMAGES[0], query=""):
    reply = server.ask(DETECT + query, image)
    assert reply.status == 200, reply
    return reply.json


@pytest.fixture(scope="module")
def detector(weights):
    return load(weights["day"], device="cpu")


@pytest.mark.parametrize("name", ["day", "masks", "kinds", "free"])
def test_served_answer_equals_a_direct_call_for_each_task(server, weights, name):
    model = load(weights[name], device="cpu")
    for image, (height, width) in zip(IMAGES, SIZES, strict=True):
        (result,) = model(image, size=SIZE)
        answer = answer_of(server, image, f"?model={name}")
        times = answer.pop("milliseconds")
        image_size = {"width": width, "height": height}
        expected = {"model": name, "image": image_size, **result.drawable_records()}
        assert answer == json.loads(json.dumps(expected)) and len(result) > 0
        assert list(times) == ["wait", "decode", "network", "finish", "total"]
        assert times["total"] == pytest.approx(sum(times.values()) - times["total"], abs=0.01)


def test_query_thresholds_act_as_in_a_call(server, detector):
    for options in ({"conf": 0.01, "iou": 0.9}, {"conf": 0.3, "max_det": 2},
                    {"classes": [0, 3], "conf": 0.01}, {"agnostic": True, "iou": 0.2}):  # fmt: skip
        words = {**options, "classes": ",".join(map(str, options.get("classes", range(5))))}
        query = "&".join(f"{name}={str(word).lower()}" for name, word in words.items())
        (result,) = detector(IMAGES[0], size=SIZE, **options)
        assert answer_of(server, query=f"?{query}")["detections"] == result.records()["detections"]


def test_concurrent_requests_get_single_request_answers(server):
    asked = [(image, f"?conf={conf}") for image in IMAGES for conf in (0.05, 0.5)]
    alone = [answer_of(server, *one)["detections"] for one in asked]
    with ThreadPoolExecutor(50) as pool:
        answers = [pool.submit(answer_of, server, *one) for one in asked * 6]
    assert [one.result()["detections"] for one in answers] == alone * 6


@pytest.mark.parametrize(("kind", "suffix"), [("jpeg", ".jpg"), ("png", ".png")])
def test_picture_answer_has_boxes_drawn(server, detector, kind, suffix):
    reply = server.ask(DETECT, IMAGES[0], {"Accept": f"image/{kind};q=0.9, */*"})
    (expected,) = detector(IMAGES[0], size=SIZE)
    _, file = cv2.imencode(suffix, expected.plot()[..., ::-1])
    assert reply.headers["content-type"] == f"image/{kind}" and reply.body == file.tobytes()


def test_exif_orientation_is_applied(server):
    turned, file = Image.Exif(), io.BytesIO()
    turned[0x0112] = 6  # the row 0 is at the right
    Image.fromarray(noise(64, 96)).save(file, "JPEG", exif=turned)
    assert answer_of(server, file.getvalue())["image"] == {"width": 64, "height": 96}


def test_multipart_form_with_a_file_is_accepted(server):
    form = b'--cut\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
    body = form + IMAGES[0] + b"\r\n--cut--\r\n"
    reply = server.ask(DETECT, body, {"Content-Type": "multipart/form-data; boundary=cut"})
    assert reply.json["detections"] == answer_of(server)["detections"] != []


def test_models_are_listed_with_the_default_first(server, weights):
    models = server.ask("/v1/model").json["models"]
    assert [model["name"] for model in models] == ["day", "masks", "kinds", "free"]
    tasks = ["detect", "segment", "classify", "detect-anchor-free"]
    assert [model["task"] for model in models] == tasks
    assert models[0]["class_names"] == list(CLASS_NAMES) and models[0]["image_size"] == SIZE
    assert models[0]["weights"] == weights["day"].name and models[0]["max_batch"] == 1
    assert models[0]["defaults"] == {"conf": 0.25, "iou": 0.45, "max_det": 1000}


def test_request_log_is_text_on_a_terminal_else_json(monkeypatch, caplog):
    caplog.set_level("INFO")
    record = {"id": "5", "method": "POST", "path": "/v1/detect", "count": 3}
    app.log_request(record, 200, 0.0456)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    app.log_request(record, 200, 0.0456)
    as_json, as_words = caplog.messages
    assert json.loads(as_json)["milliseconds"] == {"request": 45.6}
    assert as_words.partition(" ")[2] == "POST /v1/detect 200, 3 found, 46 ms"


def test_request_is_logged_and_counted_for_prometheus(server):
    reply = server.ask(DETECT + "?conf=0.01", IMAGES[0])
    line = json.loads(server.wait_for(reply.headers["x-request-id"]))
    assert (line["method"], line["path"], line["status"]) == ("POST", DETECT, 200)
    assert (line["model"], line["bytes"]) == ("day", len(IMAGES[0]))
    assert line["count"] == len(reply.json["detections"]) > 0
    lines = server.ask("/metrics").body.decode().splitlines()
    figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(figures['duet_requests_total{path="/v1/detect",status="200"}']) >= 1
    assert float(figures['duet_stage_seconds_count{model="day",stage="network"}']) >= 1
    assert figures['duet_held_requests{model="day"}'] == "0.0" and figures["duet_ready"] == "1.0"
