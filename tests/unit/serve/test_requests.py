"""What a server answers to requests that a client may well send."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.unit.serve.conftest import MAX_BYTES, MAX_PIXELS, MAX_QUEUE, MODELS
from tests.unit.serve.running import Reply, Server, image_file
from tests.unit.serve.stand_in import LARGE_PIXELS

DETECT = "/v1/detect"
JPEG = image_file()
DEFAULTS = {"conf": 0.4, "iou": 0.45, "max_det": 1000, "classes": None, "agnostic": False}


def form(*parts: tuple[str, bytes], end: bytes = b"--") -> tuple[bytes, dict[str, str]]:
    """A form of parts, each with what its Content-Disposition adds; and its Content-Type."""
    lines = [
        b'--cut\r\nContent-Disposition: form-data; name="image"%s\r\n\r\n%s\r\n'
        % (more.encode(), content)
        for more, content in parts
    ]
    return b"".join(lines) + b"--cut" + end, {"Content-Type": "multipart/form-data; boundary=cut"}


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".bmp"])
def test_the_bytes_of_an_image_reach_the_default_model_as_they_came(server: Server, suffix):
    image = image_file(suffix)
    reply = server.ask(DETECT, image, headers={"Content-Type": "text/plain"})
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    expected = {"query": DEFAULTS, "bytes": len(image), "model": "plain", "is_large": False}
    assert reply.json == {**expected, "dropped": reply.json["dropped"]}


def test_the_model_is_told_that_an_image_has_many_pixels(server):
    width = LARGE_PIXELS // 100
    found = [server.ask(DETECT, image_file(".png", 100, wide)) for wide in (width, width + 1)]
    assert [(reply.status, reply.json["is_large"]) for reply in found] == [
        (200, False),
        (200, True),
    ]


def test_the_file_of_a_form_reaches_the_model_alone(server):
    body, headers = form(('; filename="a.jpg"', JPEG))
    reply = server.ask(DETECT, body, headers=headers)
    assert (reply.status, reply.json["bytes"]) == (200, len(JPEG))


def test_a_body_in_chunks_is_read_to_its_end(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    parts = (JPEG[place : place + 700] for place in range(0, len(JPEG), 700))
    connection.request("POST", DETECT, parts, encode_chunked=True)
    assert json.loads(connection.getresponse().read())["bytes"] == len(JPEG)
    connection.close()


def test_a_query_reaches_the_model_that_it_names(server):
    query = "?model=slow&conf=0.5&iou=1&max_det=7&classes=0,2&agnostic=true"
    told = {"conf": 0.5, "iou": 1.0, "max_det": 7, "classes": [0, 2], "agnostic": True}
    found = server.ask(DETECT + query, JPEG).json
    assert (found["query"], found["model"]) == (told, "slow")


@pytest.mark.parametrize("kind", ["image/jpeg", "image/png"])
def test_an_accept_header_asks_for_an_image(server, kind):
    reply = server.ask(DETECT, JPEG, headers={"Accept": kind})
    assert (reply.status, reply.headers["content-type"]) == (200, kind)
    assert reply.body == b"\xff\xd8 drawn"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?conf=2", "conf 2.0; a number from 0 to 1 is needed"),
        ("?conf=nan", "conf nan; a number from 0 to 1 is needed"),
        ("?max_det=0", "max_det 0; a whole number from 1 up is needed"),
        ("?classes=0,3", "classes 3; the model knows 0 to 2"),
        ("?threshold=0.5", "'threshold' is no query parameter; accepted: model, conf, iou, "),
        ("?conf=0.1&conf=0.2", "conf stands twice"),
    ],
)
def test_a_wrong_query_is_answered_by_what_is_accepted(server, query, words):
    status, code, message = server.ask(DETECT + query, JPEG).error
    assert (status, code) == (400, "bad_request") and message.startswith(words)


def test_a_model_that_is_not_there_is_answered_by_those_that_are(server):
    status, code, message = server.ask(f"{DETECT}?model=day%1b", JPEG).error
    assert (status, code) == (404, "unknown_model")
    assert "'day\\x1b'" in message and all(name in message for name in MODELS)


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (b"", {}, (400, "bad_request", "the body is empty; send an image file")),
        (b"no image at all", {}, (415, "unsupported_media_type", "the body is not an image; acc")),
        (b"8BPS" + bytes(99), {}, (415, "unsupported_media_type", "PSD is not decoded; accept")),
        (JPEG, {"Accept": "text/html"}, (406, "not_acceptable", "no answer fits Accept; accepted")),
        (JPEG[:20], {}, (422, "bad_image", "broken JPEG header")),
        (image_file(".png", 4, 64), {}, (422, "bad_image", "64x4 px; at least 10 px per side")),
        (image_file(".png", 201, 200), {}, (413, "too_many_pixels", "200x201 px are 40,200, over")),
        (bytes(MAX_BYTES + 1), {}, (413, "too_large", "the image file is larger than 100,000 byt")),
    ],
    ids=["empty", "text", "psd", "accept", "truncated", "small", "pixels", "bytes"],
)
def test_a_body_that_is_no_image_in_bounds_is_refused(server, body, headers, expected):
    status, code, message = server.ask(DETECT, body, headers=headers).error
    assert (status, code) == expected[:2] and message.startswith(expected[2])


def test_images_of_just_the_largest_size_are_accepted(server):
    assert server.ask(DETECT, image_file(".jpg", 200, MAX_PIXELS // 200)).status == 200
    padded = JPEG + bytes(MAX_BYTES - len(JPEG))
    assert server.ask(DETECT, padded).json["bytes"] == MAX_BYTES
    body, headers = form(('; filename="a.jpg"', padded))
    assert server.ask(DETECT, body, headers=headers).json["bytes"] == MAX_BYTES
    body, headers = form(('; filename="a.jpg"', padded + b"\0"))
    assert server.ask(DETECT, body, headers=headers).error[:2] == (413, "too_large")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([('; filename="a"', JPEG), ('; filename="b"', JPEG)], "the form has more than one field"),
        ([("", b"0.5")], "the form field 'image' is no file"),
        ([], "the form is empty"),
    ],
    ids=["two", "no file", "empty"],
)
def test_a_form_without_its_one_file_is_refused(server, parts, words):
    body, headers = form(*parts)
    status, code, message = server.ask(DETECT, body, headers=headers).error
    assert (status, code) == (400, "bad_request")
    assert message.startswith(words) and "curl -F image=@FILE" in message


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("bad", (422, "bad_image", "broken \\x1b[31m data")),
        ("lost", (503, "worker_lost", "the process ended twice")),
        ("defect", (500, "internal", "the server failed at this request; its log says why")),
    ],
)
def test_what_goes_wrong_in_a_model_is_an_answer_too(server, model, expected):
    reply = server.ask(f"{DETECT}?model={model}", JPEG)
    assert reply.error == expected
    assert ("retry-after" in reply.headers) == (reply.status == 503)
    assert server.ask(DETECT, JPEG).status == 200


def test_more_requests_than_the_queue_holds_are_told_when_to_come_again(server):
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(lambda _: server.ask(f"{DETECT}?model=slow", JPEG), range(6)))
    refused = [reply for reply in replies if reply.status == 429]
    assert sorted(reply.status for reply in replies) == [200] * MAX_QUEUE + [429] * len(refused)
    for reply in refused:
        assert reply.error[1] == "queue_full"
        assert 1 <= int(reply.headers["retry-after"]) <= 2  # at most --timeout, in whole seconds
    assert server.ask(f"{DETECT}?model=slow", JPEG).status == 200


def test_a_request_that_takes_too_long_is_answered_and_its_work_dropped(server):
    before = server.ask(DETECT, JPEG).json["dropped"]
    assert server.ask(f"{DETECT}?model=stuck", JPEG).error[:2] == (504, "timeout")
    assert server.ask(DETECT, JPEG).json["dropped"] == before + 1


def test_the_work_of_a_client_that_has_gone_is_dropped(server):
    before = server.ask(DETECT, JPEG).json["dropped"]
    head = b"POST /v1/detect?model=stuck HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    server.connect(head % len(JPEG) + JPEG).close()
    record = json.loads(server.wait_for('"client_gone", "model": "stuck"'))
    assert (record["status"], record["model"]) == (499, "stuck")
    assert server.ask(DETECT, JPEG).json["dropped"] == before + 1


def test_a_head_request_is_answered_as_get_without_a_body(server):
    for path in ("/", "/healthz", "/nothing"):
        get, head = server.ask(path), server.ask(path, method="HEAD")
        assert (head.status, head.body) == (get.status, b"")
        assert head.headers["content-length"] == str(len(get.body)) != "0"


@pytest.mark.parametrize("path", ["/nothing", "/v1/detect/", "/docs", "/redoc", "/..%2f..%2fetc"])
def test_a_path_that_is_not_there_is_an_error_in_json(server, path):
    assert server.ask(path).error[:2] == (404, "not_found")


def test_a_method_that_a_path_lacks_is_answered_by_those_that_it_has(server):
    reply = server.ask(DETECT)
    assert reply.error[:2] == (405, "method_not_allowed") and reply.headers["allow"] == "POST"
    assert server.ask("/healthz", b"x").headers["allow"] == "GET"
    assert server.ask("/healthz", method="BREW").status == 405


def test_the_models_are_told_with_the_default_one_first(server):
    models = server.ask("/v1/model").json["models"]
    assert [model["name"] for model in models] == list(MODELS)
    assert models[0]["class_names"] == ["person", "bicycle", "car"] and models[0]["ready"] is True
    assert models[0]["defaults"] == {"conf": 0.4, "iou": 0.45, "max_det": 1000}
    assert [server.ask(path).json["status"] for path in ("/healthz", "/readyz")] == ["ok", "ready"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://example.org", "Content-Type": "text/plain"},
        {"Origin": "http://localhost:1"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_a_page_of_another_site_gets_nothing_found(server, headers):
    reply = server.ask(DETECT, JPEG, headers=headers)
    assert reply.error[:2] == (403, "foreign_page") and "--token-file" in reply.error[2]
    assert server.ask("/", headers=headers).status == 200  # a link to the page


def test_the_page_of_the_server_itself_is_answered(server):
    origin = {"Origin": f"http://127.0.0.1:{server.port}", "Sec-Fetch-Site": "same-origin"}
    assert server.ask(DETECT, JPEG, headers=origin).status == 200
    assert server.ask("/v1/model", headers={"Sec-Fetch-Site": "none"}).status == 200


@pytest.mark.parametrize("path", ["/", "/healthz", "/nothing", DETECT])
def test_every_answer_has_the_headers_of_safety_and_a_number(server, path):
    first, second = server.ask(path), server.ask(path)
    assert first.headers["x-content-type-options"] == "nosniff"
    assert first.headers["x-frame-options"] == "DENY"
    assert first.headers["referrer-policy"] == "no-referrer"
    assert first.headers["content-security-policy"].startswith("default-src 'none'; ")
    assert "server" not in first.headers
    assert len({reply.headers["x-request-id"] for reply in (first, second)}) == 2


def test_the_log_has_a_line_of_json_a_request_and_nothing_of_the_client(server):
    body, headers = form(('; filename="secret.jpg"', JPEG))
    record = server.record(server.ask(f"{DETECT}?model=slow", body, headers=headers))
    stages = record.pop("milliseconds")
    told = {name: record[name] for name in ("status", "model", "bytes", "pixels", "count")}
    assert told == {
        "status": 200, "model": "slow", "bytes": len(body), "pixels": 48 * 64, "count": 3
    }  # fmt: skip
    assert set(record) - set(told) == {"time", "id", "method", "path"}
    assert stages.keys() == {"wait", "network", "total", "request"} and stages["network"] == 2.0
    record = server.record(server.ask("/secret.jpg?token=secret", headers={"User-Agent": "secret"}))
    assert (record["path"], record["status"], record["code"]) == ("other", 404, "not_found")
    assert "secret" not in "".join(server.seen)


def figures(reply: Reply) -> dict[str, float]:
    lines = [line for line in reply.body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_the_metrics_count_requests_stages_and_what_is_held(server):
    before = figures(server.ask("/metrics"))
    server.ask(DETECT, JPEG)
    server.ask(f"{DETECT}?conf=2", JPEG)
    server.ask("/any/path")
    after = figures(server.ask("/metrics"))

    def gained(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert gained('duet_requests_total{path="/v1/detect",status="200"}') == 1
    assert gained('duet_requests_total{path="/v1/detect",status="400"}') == 1
    assert gained('duet_requests_total{path="other",status="404"}') == 1
    assert gained('duet_request_seconds_count{path="/v1/detect"}') == 2
    stage = 'duet_stage_seconds_{}{{model="plain",stage="network"}}'
    assert gained(stage.format("count")) == 1
    assert gained(stage.format("sum")) == pytest.approx(0.002)  # the stand-in's 2 ms
    assert gained('duet_found_total{model="plain"}') == 3
    assert gained('duet_batch_images_sum{model="plain"}') == 2
    assert after['duet_held_requests{model="slow"}'] == 0
    assert after['duet_worker_restarts{model="lost"}'] == 0
    assert after['duet_model_ready{model="plain"}'] == 1
