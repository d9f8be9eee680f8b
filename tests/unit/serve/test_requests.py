"""What a server refuses: mistakes, attempts and wrong tokens, with status, code and words."""

import asyncio
import os
import socket

import pytest
from python_multipart.exceptions import MultipartParseError
from starlette.requests import Request

from duet.utils.errors import UserError
from duet.utils.serve.requests import RequestError, check_access, read_image, read_tokens
from tests.unit.detect.media.test_image_file import png_of
from tests.unit.serve.conftest import DETECT, MAX_BYTES, SECONDS, TOKENS, image_file

IMAGE = image_file()
FORM = "multipart/form-data; boundary=cut"
FIELD = b'--cut\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n'


BAD_REQUEST, TOO_LARGE, BAD_IMAGE = (400, "bad_request"), (413, "too_large"), (422, "bad_image")
NOT_FOUND = (404, "not_found")
AS_FORM = {"Content-Type": FORM}
PICTURE = FIELD % (b"a", b'; filename="a"')
END = b"\r\n--cut--\r\n"
TOO_MANY = iter([bytes(MAX_BYTES), b"x"])  # in chunks, without a length
# Path, body, headers, and the answer: status with code, and words of the message.
REFUSED = [
    ("?conf=2", IMAGE, {}, BAD_REQUEST, "conf 2; accepted: a number from 0 to 1"),
    ("?conf=x%1b", IMAGE, {}, BAD_REQUEST, "conf 'x\\x1b'; accepted: a number from 0 to 1"),
    ("?max_det=9e9", IMAGE, {}, BAD_REQUEST, "max_det '9e9'; accepted: "),
    ("?max_det=5001", IMAGE, {}, BAD_REQUEST, "max_det 5001 is too large; accepted: up to 5,000"),
    ("?model=masks&max_det=1001", IMAGE, {}, BAD_REQUEST, "too large; accepted: up to 1,000"),
    ("?classes=1,x", IMAGE, {}, BAD_REQUEST, "classes 'x': the model has "),
    ("?agnostic=maybe", IMAGE, {}, BAD_REQUEST, "agnostic 'maybe'; accepted: true, false"),
    ("?conf=0.1&conf=0.2", IMAGE, {}, BAD_REQUEST, "the query parameter conf appears twice"),
    ("?size=3", IMAGE, {}, BAD_REQUEST, "unknown query parameter 'size'; accepted: model, conf"),
    ("?model=kinds&conf=0.5", IMAGE, {}, BAD_REQUEST, "--conf"),
    ("?model=other", IMAGE, {}, (404, "unknown_model"), ""),
    ("", b"no image", {}, BAD_IMAGE, "not an image"),
    ("", IMAGE[:-30], {}, BAD_IMAGE, ""),
    ("", image_file(9, 9), {}, BAD_IMAGE, "at least 10 px"),
    ("", image_file(300, 300), {}, BAD_IMAGE, "over the limit of 70,000"),
    ("", png_of(30_000, 30_000), {}, BAD_IMAGE, "over the limit of 70,000"),
    ("", png_of(200, 200), {}, BAD_IMAGE, ""),
    ("", b"GIF89a" + bytes(100), {}, BAD_IMAGE, ""),
    ("", b"", {}, BAD_REQUEST, ""),
    ("", bytes(MAX_BYTES + 1), {}, TOO_LARGE, ""),
    ("", TOO_MANY, {}, TOO_LARGE, ""),
    ("", b"nonsense", AS_FORM, BAD_REQUEST, ""),
    ("", b"x", {"Content-Type": "multipart/form-data"}, BAD_REQUEST, ""),
    ("", FIELD % (b"image", b"") + b"text" + END, AS_FORM, BAD_REQUEST, ""),
    ("", PICTURE + IMAGE + b"\r\n" + PICTURE + IMAGE + END, AS_FORM, BAD_REQUEST, ""),
    ("", PICTURE + bytes(MAX_BYTES + 1) + END, AS_FORM, TOO_LARGE, ""),
    ("", IMAGE, {"Origin": "https://elsewhere.example"}, (403, "foreign_page"), ""),
    ("", IMAGE, {"Host": "elsewhere.example"}, (421, "wrong_host"), ""),
    # As YOLOv5's example of a server has /v1/object-detection/yolov5s, others /predict or /detect.
    ("", None, {}, (405, "method_not_allowed"), "POST /v1/detect"),
    ("/nothing%1b[31m", None, {}, NOT_FOUND, "POST /v1/detect"),
    ("/../../etc/passwd", None, {}, NOT_FOUND, "POST /v1/detect"),
]


@pytest.mark.parametrize(
    ("path", "body", "headers", "answer", "words"), REFUSED, ids=map(str, range(len(REFUSED)))
)
def test_request_is_refused_and_the_next_one_answered(server, path, body, headers, answer, words):
    worker = server.worker
    reply = server.ask(path if path.startswith("/") else DETECT + path, body, headers)
    assert reply.error == answer and words in reply.json["error"]["message"]
    assert server.ask(DETECT, IMAGE).status == 200 and server.worker == worker


def test_broken_form_is_refused_with_any_starlette_version(monkeypatch):
    """As before 1.8."""

    async def parse(self):
        raise MultipartParseError("at index 2")

    monkeypatch.setattr("starlette.formparsers.MultiPartParser.parse", parse)
    request = Request({"type": "http", "headers": [(b"content-type", FORM.encode())]})
    with pytest.raises(RequestError, match="cannot be read: at index 2"):
        asyncio.run(read_image(request, MAX_BYTES, lambda num_bytes: None))


@pytest.mark.parametrize("host", ["MyHost", "myhost", "127.0.1.1", "LOCALHOST", "[::1]"])
def test_names_and_addresses_of_this_machine_are_accepted(host):
    """Debian gives the machine's name the address 127.0.1.1, which the server announces."""
    check_access(DETECT, {"host": f"{host}:8000"}, (), "MyHost")


@pytest.mark.parametrize("host", ["127.0.0.1.elsewhere.example", "127.example", "1127.0.0.1"])
def test_names_that_begin_like_an_address_are_refused(host):
    with pytest.raises(RequestError, match="only accepts localhost"):
        check_access(DETECT, {"host": host}, (), "MyHost")


def test_garbage_is_answered_and_does_not_stop_the_server(server):
    for garbage in (b"\0" * 100 + b"\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\r\n\r\n",
                    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
                    b"GET / HTTP/1.1\r\nX: " + b"x" * (1 << 15) + b"\r\n\r\n"):  # fmt: skip
        assert server.send(garbage).status == 400
    with socket.create_connection(("127.0.0.1", server.port), SECONDS) as half:
        half.sendall(b"POST /v1/detect HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nx")
    assert server.ask("/healthz").json == {"status": "ok"}
    assert server.ask(DETECT, IMAGE).status == 200


def test_answers_carry_security_headers(server):
    for path in ("/", "/nothing", "/v1/model"):
        headers = server.ask(path).headers
        assert headers["x-content-type-options"] == "nosniff" and "x-request-id" in headers
        assert headers["cache-control"] == "no-store"
    policy = server.ask("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_openapi_lists_every_path_and_query_parameter(server):
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
def test_file_without_tokens_is_refused_and_not_shown(tmp_path, content):
    (tmp_path / "tokens").write_bytes(content)
    with pytest.raises(UserError, match="create one with `openssl rand -hex 32 > FILE`") as caught:
        read_tokens(tmp_path / "tokens")
    assert "secret" not in str(caught.value) and "0123456789" not in str(caught.value)


def test_token_file_must_be_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("pipe", "is a FIFO"), ("", "is a folder"), ("none", "No such file")):
        with pytest.raises(UserError, match=words):
            read_tokens(tmp_path / name)


def test_every_token_of_the_file_grants_access(guarded):
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
