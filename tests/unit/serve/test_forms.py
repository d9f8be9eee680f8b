"""The file in a form."""

import time

import pytest

from utils.serve.failures import RequestError
from utils.serve.forms import image_of_form, is_form

TYPE = "multipart/form-data; boundary=cut"
PART = b'--cut\r\nContent-Disposition: form-data; name="picture"; filename="a.jpg"\r\n\r\n'
END = b"\r\n--cut--\r\n"


@pytest.mark.parametrize(
    "content", [b"", b"abc", b"\r\n", b"--cut", b"\r\n--cu", bytes(range(256))]
)
def test_the_file_comes_out_byte_by_byte(content):
    assert image_of_form(TYPE, PART + content + END) == content


def test_what_follows_the_end_is_not_of_the_file():
    assert image_of_form(TYPE, PART + b"abc" + END + b"more\r\n--cut\r\n") == b"abc"


@pytest.mark.parametrize("line", [b"\r\n--cutx", b"\r\n--cu", b"\r\n-", b"\r", b"\n--cut"])
def test_a_file_of_what_looks_like_boundaries_takes_no_longer(line):
    body = PART + line * (32 * 2**20 // len(line)) + END
    started = time.process_time()
    if line == b"\r\n--cutx":
        with pytest.raises(RequestError):
            image_of_form(TYPE, body)
    else:
        assert len(image_of_form(TYPE, body)) == len(body) - len(PART + END)
    assert time.process_time() - started < 1.0  # 0.05; a parser that stops at each takes 13


def test_a_form_is_known_by_its_type_whatever_its_case():
    assert is_form(TYPE) and is_form("Multipart/Form-Data; boundary=x")
    assert not any(map(is_form, ("", "image/jpeg", "application/x-www-form-urlencoded", ";")))


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (TYPE, b""),
        (TYPE, PART),
        (TYPE, PART + b"abc"),
        (TYPE, b"--other" + PART + END),
        (TYPE, PART + b"a\r\n" + PART + b"b" + END),
        (TYPE, b"--cut\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n0.5" + END),
        (TYPE, b"--cut\r\n" + b"A: b\r\n" * 9 + b"\r\nabc" + END),
        (TYPE, b"--cut\r\nA: " + b"b" * 5000 + b"\r\n\r\nabc" + END),
        ("multipart/form-data", PART + b"abc" + END),
        ("multipart/form-data; boundary=" + "c" * 300, PART + b"abc" + END),
    ],
    ids=["nothing", "head", "cut off", "boundary", "two", "field", "headers", "header", "none",
         "long"],
)  # fmt: skip
def test_what_is_no_form_with_one_file_is_refused(content_type, body):
    with pytest.raises(RequestError, match="send one file, as in curl -F image=@FILE") as caught:
        image_of_form(content_type, body)
    assert caught.value.status == 400
