"""What a server reads: uploads, the addresses of requests, tokens, and frames of its workers."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from tests.fuzz.reader import Reader
from utils.errors import UserError
from utils.serve.accepting import answer_kind
from utils.serve.failures import RequestError
from utils.serve.forms import image_of_form
from utils.serve.frames import BrokenFrameError, read_frame, start_of
from utils.serve.image_checks import checked_size
from utils.serve.messages import Query
from utils.serve.queries import read_query
from utils.serve.tokens import read_tokens

MAX_PIXELS = 10**6
FORM_TYPE = "multipart/form-data; boundary=cut"
IMAGE = cv2.imencode(".png", np.zeros((16, 16, 3), np.uint8))[1].tobytes()
PART = b'--cut\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n'
FORM_TOKENS = (
    b"--cut", b"\r\n--cut\r\n", b"\r\n--cut--", b"\r\n\r\n", b"\r\n", b"Content-Disposition: ",
    b'filename="', b"filename*=utf-8''", b'name="', b"; ", b": ", b"\\",
)  # fmt: skip


def read_form(path: Path) -> None:
    try:
        checked_size(image_of_form(FORM_TYPE, path.read_bytes()), MAX_PIXELS)
    except RequestError as error:
        raise UserError(str(error)) from error


def read_words(path: Path) -> None:
    """Read the first line as a query, the rest as an Accept header."""
    query, _, accept = path.read_bytes().partition(b"\n")
    try:
        read_query(query, Query())
        answer_kind(accept.decode("latin-1"))
    except RequestError as error:
        raise UserError(str(error)) from error


def read_frames(path: Path) -> None:
    try:
        with path.open("rb") as file:
            while read_frame(file):
                pass
    except BrokenFrameError as error:
        raise UserError(str(error)) from error


def frames() -> list[bytes]:
    header = {"id": 1, "query": {"conf": 0.25, "classes": None}, "answer": "json"}
    return [2 * (start_of(header, 3) + b"abc")]


SERVE_READERS = {
    "serve-form": Reader(
        read_form,
        lambda: [PART + b"Content-Type: image/png\r\n\r\n" + IMAGE + b"\r\n--cut--\r\n"],
        "form",
        FORM_TOKENS,
    ),
    "serve-query": Reader(
        read_words,
        lambda: [b"model=a&conf=0.25&iou=0.45&max_det=9&classes=0,2&agnostic=1\nimage/png;q=0.9"],
        "query",
        (b"%ff", b"%00", b"&", b"=", b"conf=", b"nan", b"inf", b"1e999", b",", b";q=", b"*/*"),
    ),
    "serve-tokens": Reader(
        read_tokens,
        lambda: [b"0123456789abcdef\n0123456789abcdef-ABC_.~+/==\n"],
        "tokens",
        (b"\n", b"\r", b"\0", b"=", b"\x1b[31m", b"\xe2\x80\xae", b"\xc2\x85"),
    ),
    "serve-frame": Reader(
        read_frames,
        frames,
        "frame",
        (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"{", b"[", b'"id":', b"NaN"),
    ),
}
