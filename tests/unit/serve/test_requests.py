"""What a server refuses: mistakes, attempts and wrong tokens, with status, code and words."""

import asyncio
import os
import socket

import pytest
from python_multipart.exceptions import MultipartParseError
from starlette.requests import Request

from duet.utils.errors import UserError
from duet.utils.serve.requests import RequestError, read_image, read_tokens
from tests.unit.detect.media.test_image_file import png_of
from tests.unit.serve.conftest import MAX_BYTES, TOKENS
from tests.unit.serve.running import DETECT, SECONDS, image_file

IMAGE = image_file()
FORM = "multipart/form-data; boundary=cut"
FIELD = b'--cut\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n'


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("conf=2", "conf 2; accepted: a number from 0 to 1"),
        ("conf=x%1b", "conf 'x\\x1b'; accepted: a number from 0 to 1"),
        ("max_det=9e9", "max_det '9e9'; accepted: "),
        ("max_det=5001", "max_det 5001 is too large; accepted: up to 5,000"),
        ("model=masks&max_det=1001", "max_det 1001 is too large; accepted: up to 1,000"),
        ("classes=1,x", "classes 'x': the model has "),
        ("agnostic=maybe", "agnostic 'maybe'; accepted: true, false"),
        ("conf=0.1&conf=0.2", "the query parameter conf appears twice"),
        ("size=3", "unknown query parameter 'size'; accepted: model, conf"),
        ("model=kinds&conf=0.5", "--conf"),
    ],
)
def test_a_query_that_cannot_be_honoured_is_refused(server, query, words):
    reply = server.ask(f"{DETECT}?{query}", IMAGE)
    assert reply.error == (400, "bad_request") and words in reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"no image", "not an image"),
        (IMAGE[:-30], ""),
        (image_file(9, 9), "at least 10 px"),
        (image_file(300, 300), "over the limit of 70,000"),
        (png_of(30_000, 30_000), "over the limit of 70,000"),
        (png_of(200, 200), ""),
        (b"GIF89a" + bytes(100), ""),
    ],
    ids=["text", "cut off", "tiny", "large", "bomb", "hollow", "zeros"],
)
def test_an_image_that_cannot_be_used_is_refused_and_the_next_one_answered(server, body, words):
    worker = server.worker
    reply = server.ask(DETECT, body)
    assert reply.error == (422, "bad_image") and words in reply.json["error"]["message"]
    assert server.ask(DETECT, IMAGE).status == 200 and server.worker == worker


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (b"", {}, (400, "bad_request")),
        (bytes(MAX_BYTES + 1), {}, (413, "too_large")),
        (iter([bytes(MAX_BYTES), b"x"]), {}, (413, "too_large")),  # in chunks, without a length
        (b"nonsense", {"Content-Type": FORM}, (400, "bad_request")),
        (b"x", {"Content-Type": "multipart/form-data"}, (400, "bad_request")),
        (FIELD % (b"image", b"") + b"text\r\n--cut--\r\n", {"Content-Type": FORM},
         (400, "bad_request")),
        (2 * (FIELD % (b"a", b'; filename="a"') + IMAGE + b"\r\n") + b"--cut--\r\n",
         {"Content-Type": FORM}, (400, "bad_request")),
        (FIELD % (b"a", b'; filename="a"') + bytes(MAX_BYTES + 1) + b"\r\n--cut--\r\n",
         {"Content-Type": FORM}, (413, "too_large")),
        (IMAGE, {"Origin": "https://elsewhere.example"}, (403, "foreign_page")),
        (IMAGE, {"Host": "elsewhere.example"}, (421, "wrong_host")),
    ],
)  # fmt: skip
def test_a_body_or_a_header_that_is_not_accepted_is_refused(server, body, headers, expected):
    assert server.ask(DETECT, body, headers).error == expected


def test_a_form_is_refused_where_starlette_passes_on_the_error_of_its_parser(monkeypatch):
    """As before 1.8."""

    async def parse(self):
        raise MultipartParseError("at index 2")

    monkeypatch.setattr("starlette.formparsers.MultiPartParser.parse", parse)
    request = Request({"type": "http", "headers": [(b"content-type", FORM.encode())]})
    with pytest.raises(RequestError, match="cannot be read: at index 2"):
        asyncio.run(read_image(request, MAX_BYTES, lambda num_bytes: None))


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", DETECT, (405, "method_not_allowed")),
        ("GET", "/nothing%1b[31m", (404, "not_found")),
        ("GET", "/../../etc/passwd", (404, "not_found")),
        ("POST", f"{DETECT}?model=other", (404, "unknown_model")),
    ],
)
def test_an_unknown_path_or_model_is_not_found(server, method, path, expected):
    assert server.ask(path, method=method).error == expected


def test_garbage_is_answered_and_ends_nothing(server):
    for garbage in (b"\0" * 100 + b"\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\r\n\r\n",
                    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
                    b"GET / HTTP/1.1\r\nX: " + b"x" * (1 << 15) + b"\r\n\r\n"):  # fmt: skip
        assert server.send(garbage).status == 400
    with socket.create_connection(("127.0.0.1", server.port), SECONDS) as half:
        half.sendall(b"POST /v1/detect HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nx")
    assert server.ask("/healthz").json == {"status": "ok"}
    assert server.ask(DETECT, IMAGE).status == 200


def test_answers_carry_headers_that_browsers_obey(server):
    for path in ("/", "/nothing", "/v1/model"):
        headers = server.ask(path).headers
        assert headers["x-content-type-options"] == "nosniff" and "x-request-id" in headers
        assert headers["cache-control"] == "no-store"
    policy = server.ask("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_the_description_lists_every_path_and_query_parameter(server):
    document = server.ask("/openapi.json").json
    for path, methods in document["paths"].items():
        for method in methods:
            assert server.ask(path, method=method.upper()).status in (200, 400)
    names = [one["name"] for one in document["paths"][DETECT]["post"]["parameters"]]
    message = server.ask(f"{DETECT}?x=1", IMAGE).json["error"]["message"]
    assert message.endswith(", ".join(names))


@pytest.mark.parametrize(
    "content", [b"", b"\n \n", b"short\n", b"0123456789abcdef\nsecret token 1234567\n",
                "0123456789abcdeé".encode(), b"\xff" * 20, b"a" * (1 << 17)]
)  # fmt: skip
def test_a_file_without_tokens_is_refused_and_not_shown(tmp_path, content):
    (tmp_path / "tokens").write_bytes(content)
    with pytest.raises(UserError, match="create one with `openssl rand -hex 32 > FILE`") as caught:
        read_tokens(tmp_path / "tokens")
    assert "secret" not in str(caught.value) and "0123456789" not in str(caught.value)


def test_a_token_file_must_be_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("pipe", "is a FIFO"), ("", "is a folder"), ("none", "No such file")):
        with pytest.raises(UserError, match=words):
            read_tokens(tmp_path / name)


def test_a_token_is_needed_and_each_of_the_file_is_taken(guarded):
    image = image_file()
    for word in ("", "Bearer", "Bearer wrong-0123456789", f"Basic {TOKENS[0]}",
                 f"Bearer {TOKENS[0]}x"):  # fmt: skip
        reply = guarded.ask(DETECT, image, {"Authorization": word} if word else {})
        assert reply.error == (401, "unauthorized")
        assert reply.headers["www-authenticate"] == "Bearer"
    for token in TOKENS:
        headers = {"Authorization": f"bearer {token}", "Host": "detector.example"}
        assert guarded.ask(DETECT, image, headers).status == 200
    for path, status in (("/", 200), ("/healthz", 200), ("/readyz", 200), ("/metrics", 401),
                         ("/v1/model", 401), ("/nothing", 401)):  # fmt: skip
        assert guarded.ask(path).status == status
    assert not any(token in line for line in guarded.seen for token in TOKENS)
