"""A server from its start to its end, and what it does when its models die, hang or are slow."""

import asyncio
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import pytest

from duet.utils.optional import install_command
from duet.utils.serve.frames import pack_frame
from duet.utils.serve.requests import RequestError, Room
from duet.utils.serve.worker import Worker
from duet.utils.system.machine import descendants
from tests.environments import has_ended, wait_until
from tests.unit.serve.conftest import DETECT, SECONDS, image_file, running, start

IMAGE = image_file()
TIMEOUT, MAX_QUEUE = 1.5, 4


@pytest.fixture(scope="module")
def fragile(weights):
    limits = ("--timeout", TIMEOUT, "--max-queue", MAX_QUEUE)
    with running("--weights", f"day={weights['day']}", *limits) as found:
        yield found


@contextmanager
def stopped(process: int):
    """A process that hangs in the block."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def test_dead_worker_costs_503_and_is_replaced(fragile):
    fragile.until_ready()
    worker = fragile.worker
    with ThreadPoolExecutor(MAX_QUEUE) as pool, stopped(worker):
        asked = [pool.submit(fragile.ask, DETECT, IMAGE) for _ in range(MAX_QUEUE)]
        wait_until(lambda: f'duet_held_requests{{model="day"}} {MAX_QUEUE}' in metrics_of(fragile))
        os.kill(worker, signal.SIGKILL)
        replies = [one.result() for one in asked]
    assert {reply.error for reply in replies} == {(503, "worker_lost")}
    assert all("retry-after" in reply.headers for reply in replies)
    assert fragile.ask("/healthz").status == 200
    fragile.until_ready()
    assert fragile.ask(DETECT, IMAGE).status == 200 and fragile.worker != worker
    assert "duet_worker_restarts_total 1.0" in metrics_of(fragile)


def metrics_of(server) -> str:
    return server.ask("/metrics").body.decode()


def test_requests_beyond_the_queue_limit_are_refused(fragile):
    fragile.until_ready()
    with ThreadPoolExecutor(50) as pool, stopped(fragile.worker):
        asked = [pool.submit(fragile.ask, DETECT, IMAGE) for _ in range(50)]
        wait_until(lambda: sum(one.done() for one in asked) == 50 - MAX_QUEUE)
        refused = [one.result() for one in asked if one.done()]
        assert {reply.error for reply in refused} == {(429, "queue_full")}
        assert all(reply.headers["retry-after"] == "1" for reply in refused)
    assert fragile.ask(DETECT, IMAGE).status == 200


def test_hung_worker_is_answered_with_504_and_replaced(fragile):
    fragile.until_ready()
    worker = fragile.worker
    os.kill(worker, signal.SIGSTOP)
    assert fragile.ask(DETECT, IMAGE).error == (504, "timeout")
    fragile.wait_for("the model process has not answered for 1.5 s")
    fragile.until_ready()
    assert fragile.ask(DETECT, IMAGE).status == 200 and fragile.worker != worker


def test_request_timing_out_during_loading_keeps_the_worker():
    """A worker that was ready just before a request's time ends has not hung."""

    async def ask_while_loading():
        process = SimpleNamespace(stdout=asyncio.StreamReader(), stdin=Mock(), kill=Mock())
        process.stdin.drain = AsyncMock()
        worker = Worker([])
        worker._process = process
        asked = asyncio.ensure_future(worker.ask({}, b"", 0.2))
        await asyncio.sleep(0.1)
        process.stdout.feed_data(pack_frame({"models": []}))
        delivering = asyncio.ensure_future(worker._deliver_answers())
        with pytest.raises(asyncio.TimeoutError):
            await asked
        delivering.cancel()
        return process

    process = asyncio.run(ask_while_loading())
    assert (process.stdin.write.call_count, process.kill.call_count) == (1, 0)


def test_slow_upload_is_abandoned(fragile):
    fragile.until_ready()
    worker = fragile.worker
    head = b"POST /v1/detect HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nx"
    assert fragile.send(head).error == (408, "request_timeout")
    assert fragile.worker == worker


POST = b"POST /v1/detect HTTP/1.1\r\nHost: localhost\r\n"
SLOW = (POST + b"Content-Length: 99\r\n\r\nx", POST, b"")  # a byte of a body, half a head, nothing


def test_slow_clients_do_not_delay_quick_ones(fragile):
    fragile.until_ready()
    with ExitStack() as slow:
        connections = []
        for text in SLOW * (3 * MAX_QUEUE):
            one = socket.create_connection(("127.0.0.1", fragile.port), SECONDS)
            connections.append(slow.enter_context(one))
            one.sendall(text)
        asked = time.monotonic()
        for _ in range(4):
            assert fragile.ask(DETECT, IMAGE).status == 200
        assert time.monotonic() - asked < TIMEOUT  # each before the first slow one was given up
        for number, one in enumerate(connections):
            with one.makefile("rb") as answer:  # ends with the connection
                assert answer.read().startswith(b"HTTP/1.1 408" if number % 3 == 0 else b"")


def test_dripping_or_unreading_client_is_disconnected(fragile):
    fragile.until_ready()
    get = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", fragile.port), SECONDS) as one:
        one.sendall(get)
        wait_until(lambda: is_closed_after(one, b"G"))
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", fragile.port))
        one.sendall(get * 2000)
        time.sleep(2 * TIMEOUT)
        received = b""
        with suppress(ConnectionResetError):
            while part := one.recv(1 << 16):
                received += part
        assert 0 < received.count(b"HTTP/1.1 200") < 2000


def is_closed_after(connection: socket.socket, drop: bytes) -> bool:
    try:
        connection.sendall(drop)
    except OSError:
        return True
    time.sleep(0.1)
    return False


def test_concurrent_images_share_a_memory_limit():
    room = Room(10)
    with room.held() as take, room.held() as other:
        take(6)
        other(4)
        with pytest.raises(RequestError, match="too many images"):
            other(1)
    with room.held() as take:
        take(10)


def test_accepted_requests_are_answered_before_shutdown(weights):
    with running("--weights", weights["day"]) as server:
        with ThreadPoolExecutor(2) as pool, stopped(server.worker):
            name = weights["day"].stem
            asked = [pool.submit(server.ask, DETECT, IMAGE) for _ in range(2)]
            wait_until(lambda: f'duet_held_requests{{model="{name}"}} 2' in metrics_of(server))
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: refuses(server.port))
        assert [one.result().status for one in asked] == [200, 200]
        assert server.process.wait(SECONDS) == 0


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), SECONDS).close()
    except ConnectionRefusedError:
        return True
    return False


def test_health_is_answered_while_models_load(weights):
    with running("--weights", weights["day"], ready=False) as server:
        assert server.ask("/healthz").status == 200
        assert server.ask("/readyz").error == (503, "starting")
        assert server.ask(DETECT, IMAGE).status == 200
        line = server.wait_for("ready: ")
        assert line.endswith(f"ready: curl --data-binary @image.jpg {server.root}{DETECT}")
        assert server.end(signal.SIGINT) == 0


def test_shutdown_while_loading_leaves_no_process(weights):
    with running("--weights", weights["day"], ready=False) as server:
        wait_until(lambda: len(descendants(server.process.pid)) == 1)
        worker = server.worker
        assert server.end() == 0 and has_ended(worker)


def test_worker_ends_with_a_killed_server(weights):
    with running("--weights", weights["day"]) as server:
        worker = server.worker
        server.process.kill()
        wait_until(lambda: has_ended(worker))


def failed_start(*flags: object, **environ: str) -> str:
    """What a server prints that ends at its start with the code of a mistake."""
    process = start(*flags, **environ)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 2 and "Traceback" not in output
    return output


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--weights", "W", "night=absent.pt"], "--weights absent.pt: no such file; nothing is"),
        (["--weights", "absent.onnx"], "--weights absent.onnx: no such file"),
        (["--weights", "W", "--host", "0.0.0.0"], "add --token-file, or --insecure"),
        (["--weights", "W", "--token-file", "absent"], "create one with `openssl rand -hex 32 >"),
    ],
)
def test_wrong_flags_end_the_start_with_one_message(weights, flags, words):
    flags = [str(weights["day"]) if flag == "W" else flag for flag in flags]
    (line,) = failed_start(*flags).splitlines()
    assert line.startswith("error: ") and words in line


def test_taken_port_is_an_error_with_the_next_step(weights):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        output = failed_start("--weights", weights["day"], "--port", port)
    assert f"--port {port}: Address already in use" in output and "--port 0" in output


def test_missing_starlette_error_names_the_install_command(tmp_path):
    (tmp_path / "starlette.py").write_text("raise ImportError(name='starlette')")
    output = failed_start("--weights", "W", PYTHONPATH=str(tmp_path))
    command = install_command("starlette")
    assert output.startswith(f"error: duet serve needs starlette; install it: {command}")
