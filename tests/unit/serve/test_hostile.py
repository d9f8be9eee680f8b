"""Clients that are slow, silent, wrong about lengths, or many; each by its own sockets."""

from __future__ import annotations

import http.client
import json
import re
import socket
import struct
import time
import zlib
from contextlib import ExitStack

import pytest

from tests.unit.serve.conftest import MAX_BYTES
from tests.unit.serve.running import Server, image_file, read_all, receive, running
from utils.serve.connections import FEWEST_CONNECTIONS
from utils.serve.forms import ENVELOPE_BYTES
from utils.serve.lingering import DRAIN_SECONDS
from utils.serve.uploads import WHOLE_UPLOADS

JPEG = image_file()
DETECT = b"POST /v1/detect HTTP/1.1\r\nHost: localhost\r\n"
MODEL = ("--weights", "plain=x")


def head(length: int, *more: bytes) -> bytes:
    lines = [DETECT, b"Content-Length: %d\r\n" % length, *(line + b"\r\n" for line in more)]
    return b"".join(lines) + b"\r\n"


def statuses(answer: bytes) -> list[int]:
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


def error_of(answer: bytes) -> str:
    return json.loads(answer.rpartition(b"\r\n\r\n")[2])["error"]["code"]


def test_connections_that_say_nothing_are_ended_and_others_answered_meanwhile(server):
    with ExitStack() as stack:
        silent = [stack.enter_context(server.connect()) for _ in range(300)]
        assert server.ask("/v1/detect", JPEG).status == 200
        assert {read_all(connection) for connection in silent} == {b""}  # it ends all of them
    assert server.ask("/v1/detect", JPEG).status == 200


def test_a_head_that_comes_byte_by_byte_is_ended(server):
    with server.connect(b"POST /v1/detect HTTP/1.1\r\nX-Slow: ") as connection:
        connection.settimeout(0.05)
        ended = False
        for _ in range(400):  # 20 seconds
            try:
                connection.sendall(b"a")
                ended = connection.recv(1) == b""
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                ended = True
            if ended:
                break
        assert ended


def test_a_second_head_that_comes_byte_by_byte_is_ended_too(server):
    with server.connect(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nG") as connection:
        assert statuses(read_all(connection)) == [200]


def test_a_connection_that_asks_again_and_again_is_kept(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.connect()
    with connection.sock as first:
        for _ in range(8):  # longer than a silent one lives
            connection.request("GET", "/healthz")
            assert connection.getresponse().read() == b'{"status":"ok"}'
            time.sleep(0.15)
        assert connection.sock is first


def test_a_body_that_comes_too_slowly_is_answered(server):
    with server.connect(head(len(JPEG)) + JPEG[:10]) as connection:
        answer = read_all(connection)
        assert statuses(answer) == [408] and error_of(answer) == "request_timeout"
    assert server.ask("/v1/detect", JPEG).status == 200


@pytest.mark.parametrize("length", [10**6, 10**18])
def test_a_length_beyond_the_limit_is_refused_before_the_body_comes(server, length):
    with server.connect(head(length)) as connection:
        assert receive(connection).error[:2] == (413, "too_large")


def test_a_body_in_chunks_without_an_end_is_refused_at_the_limit(server):
    with server.connect(DETECT + b"Transfer-Encoding: chunked\r\n\r\n") as connection:
        chunk = b"8000\r\n" + bytes(0x8000) + b"\r\n"
        for _ in range(5):
            connection.sendall(chunk)
        assert receive(connection).error[:2] == (413, "too_large")


def test_large_bodies_that_come_slowly_take_a_bounded_amount_of_memory(server):
    most = WHOLE_UPLOADS * (MAX_BYTES + ENVELOPE_BYTES)
    with ExitStack() as stack:
        for _ in range(most // (MAX_BYTES - 1)):
            stack.enter_context(server.connect(head(MAX_BYTES) + bytes(MAX_BYTES - 1)))
        first = stack.enter_context(server.connect(head(MAX_BYTES) + bytes(MAX_BYTES - 1)))
        refused = receive(first)
        assert refused.error[:2] == (429, "too_many_uploads") and refused.headers["retry-after"]
    while server.ask("/v1/detect", JPEG).status == 429:  # until the others have gone
        pass
    assert server.ask("/v1/detect", JPEG + bytes(MAX_BYTES - len(JPEG))).status == 200


def test_a_client_that_waits_for_continue_gets_it_or_a_refusal(server):
    with server.connect(head(len(JPEG), b"Expect: 100-continue")) as connection:
        assert statuses(connection.recv(1 << 16)) == [100]
        connection.sendall(JPEG)
        assert receive(connection).status == 200
    with server.connect(head(10**9, b"Expect: 100-continue")) as connection:
        assert receive(connection).status == 413


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # how TLS begins
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /v1/detect HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/detect HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        b"POST /v1/detect HTTP/1.1\r\nHost: a\r\nContent-Length: 1" + b"0" * 5000 + b"\r\n\r\n",
        b"POST /v1/detect HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"POST /v1/detect HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["tls", "hosts", "no host", "negative", "lengths", "digits", "coding", "long", "chunk"],
)
def test_what_is_no_http_is_answered_in_the_form_of_all_errors(server, text):
    before = refused_outside(server)
    with server.connect(text) as connection:
        reply = receive(connection)
    assert reply.error[:2] in ((400, "bad_request"), (421, "wrong_host"))
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert server.record(reply)["status"] == reply.status
    if reply.status == 400:
        assert refused_outside(server) == before + 1


def refused_outside(server: Server) -> float:
    """How many requests to no path were answered with 400."""
    found = re.search(r'path="other",status="400"} (\S+)', server.ask("/metrics").body.decode())
    return float(found[1]) if found else 0.0


def test_an_upgrade_that_is_not_there_is_a_request_like_others(server):
    upgrade = b"Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with server.connect(b"GET /healthz HTTP/1.1\r\n" + upgrade) as connection:
        assert receive(connection).json == {"status": "ok"}


def test_pipelined_requests_are_answered_in_order(server):
    bodies = (JPEG, b"no image", JPEG)
    with server.connect(b"".join(head(len(body)) + body for body in bodies)) as connection:
        assert statuses(read_all(connection)) == [200, 415, 200]


def test_a_body_shorter_than_its_length_is_nobodys_request(server):
    with server.connect(head(len(JPEG) + 5) + JPEG) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert statuses(read_all(connection)) in ([], [400])
    assert server.ask("/v1/detect", JPEG).status == 200


UNREAD = b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"


def test_an_answer_before_the_end_of_the_body_is_the_last_of_its_connection(server):
    with server.connect(UNREAD) as connection:
        reply = receive(connection)
        assert (reply.status, reply.headers["connection"]) == (404, "close")
        ended = time.monotonic() + 3 * DRAIN_SECONDS
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while time.monotonic() < ended:
                connection.sendall(b"a")
                time.sleep(0.05)


def test_a_client_that_sends_all_before_it_reads_gets_its_refusal(server):
    with server.connect(UNREAD + bytes(10**6)) as connection:
        assert statuses(read_all(connection)) == [404]


def test_what_comes_after_an_answer_is_bounded(server):
    endless = b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
    sent = 0
    with server.connect(endless) as connection:
        assert receive(connection).status == 404
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while sent < 10**9:
                sent += connection.send(bytes(1 << 16))


def test_answered_connections_make_room_though_their_clients_send_on():
    with running(*MODEL, files=64) as server, ExitStack() as stack:
        for _ in range(FEWEST_CONNECTIONS):
            connection = stack.enter_context(server.connect(UNREAD))
            assert receive(connection).status == 404
        assert server.ask("/v1/detect", JPEG).status == 200


def test_chunks_of_a_byte_are_refused_in_a_block_of_many(server):
    chunked = DETECT + b"Transfer-Encoding: chunked\r\n\r\n"
    with server.connect(chunked) as connection:
        time.sleep(0.1)
        connection.sendall(b"1\r\nx\r\n" * 40_000)
        reply = receive(connection)
        assert reply.error[:2] == (400, "bad_request") and "larger ones" in reply.error[2]
    small = b"".join(b"%x\r\n%s\r\n" % (100, bytes(100)) for _ in range(900))
    with server.connect(chunked + small + b"0\r\n\r\n") as connection:
        assert receive(connection).status == 415  # all of it was read


def test_more_connections_than_files_end_the_silent_ones_and_not_the_server():
    with running(*MODEL, files=64) as server, ExitStack() as stack:
        for _ in range(150):
            stack.enter_context(server.connect())
        assert server.ask("/v1/detect", JPEG).status == 200
        assert server.end() == 0


def png_of(width: int, height: int) -> bytes:
    """A PNG whose header says so, and whose pixels are not there."""
    content = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + content + struct.pack(">I", zlib.crc32(content))
    return b"\x89PNG\r\n\x1a\n" + chunk + b"\0\0\0\0IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))


@pytest.mark.parametrize(
    ("image", "code"),
    [
        (png_of(20_000, 20_000), (413, "too_many_pixels")),
        (png_of(2**31 - 1, 2**31 - 1), (413, "too_many_pixels")),
        (png_of(1, 1), (422, "bad_image")),
        (png_of(0, 0), (422, "bad_image")),
        (b"\xff\xd8" + b"\xff\xe1\x00\x02" * 20_000, (422, "bad_image")),
        (b"\xff\xd8" + b"\xff" * 90_000, (422, "bad_image")),
        (b"RIFF\xff\xff\xff\xffWEBPVP8X" + bytes(50), (422, "bad_image")),
        (b"II*\0" + b"\x08\0\0\0" + b"\xff\xff" + b"\x00" * 80_000, (422, "bad_image")),
        (b"\0\0\0\x20ftypavif" + b"\0" * 90, (422, "bad_image")),
    ],
    ids=["20,000", "2^31", "1", "0", "segments", "fill", "webp", "tiff", "avif"],
)
def test_a_hostile_image_is_refused_by_its_header(server: Server, image, code):
    assert server.ask("/v1/detect", image).error[:2] == code
