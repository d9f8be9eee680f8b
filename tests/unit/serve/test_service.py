"""A server from its start to its end: addresses, tokens, models that fail, signals."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.unit.serve.running import image_file, refusal, running, start

JPEG = image_file()
TOKEN = "0123456789abcdef-ABC_.~+/="
MODEL = ("--weights", "plain=x")


def test_the_front_process_knows_no_framework():
    code = "import sys, utils.serve.__main__, utils.serve.service; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    known = done.stdout.split()
    assert "fastapi" in known and "utils.serve.service" in known
    assert not {"torch", "oneflow", "onnxruntime", "openvino"} & set(known)


def test_a_port_that_is_taken_ends_the_start_with_the_next_step(server):
    code, output = refusal(*MODEL, "--port", server.port)
    assert (code, output) == (
        2,
        f"error: --host 127.0.0.1 --port {server.port}: another program listens there; give "
        "another --port, or 0 for a free one\n",
    )


def test_a_name_that_leads_here_by_chance_is_refused(server):
    for host in ("localhost:99", "127.0.0.1", "[::1]:8000", "LOCALHOST"):
        assert server.ask("/v1/model", headers={"Host": host}).status == 200
    for host in ("example.org", "127.0.0.1.example.org", "localhost.example.org:80", "[::1"):
        assert server.ask("/", headers={"Host": host}).error[:2] == (421, "wrong_host")


def test_with_tokens_all_but_the_page_and_the_probes_needs_one(tmp_path: Path):
    file = tmp_path / "tokens"
    file.write_text(f"another-token-of-somebody\n\n{TOKEN}\n")
    with running(*MODEL, "--token-file", file) as server:
        assert "Authorization: Bearer TOKEN" in server.seen[-1]
        for path in ("/", "/healthz", "/readyz"):
            assert server.ask(path).status == 200
        for path in ("/v1/model", "/metrics", "/openapi.json", "/v1/detect", "/nothing"):
            for header in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": TOKEN}):
                reply = server.ask(path, headers=header)
                assert reply.error[:2] == (401, "unauthorized")
                assert reply.headers["www-authenticate"] == "Bearer"
        for scheme in ("Bearer", "bearer"):
            headers = {"Authorization": f"{scheme} {TOKEN}", "Host": "example.org"}
            assert server.ask("/v1/detect", JPEG, headers=headers).status == 200
        assert server.end() == 0
        assert TOKEN not in "".join([*server.seen, *iter(server.lines.get, "(end)")])


def test_a_model_that_cannot_be_used_ends_the_start():
    code, output = refusal(*MODEL, "failing=/nowhere/best.pt")
    assert code == 2 and output.endswith("error: --weights /nowhere/best.pt: no such file\n")


def test_while_a_model_is_started_the_server_lives_and_is_not_ready(tmp_path):
    file = tmp_path / "late.pt"
    with running("--weights", "plain=x", f"late={file}", ready=False) as server:
        assert server.ask("/healthz").status == 200
        assert server.ask("/readyz").error[:2] == (503, "starting")
        reply = server.ask("/v1/detect?model=late", JPEG)
        assert reply.error[:2] == (503, "starting") and "retry-after" in reply.headers
        assert [model["ready"] for model in server.ask("/v1/model").json["models"]] == [True, False]
        file.write_bytes(b"")
        server.wait_for("ready: ")
        assert server.ask("/readyz").status == 200


def test_at_the_end_what_was_accepted_is_answered_and_nothing_new_taken():
    with running("--weights", "slow=x", "--max-queue", 9) as server, ThreadPoolExecutor(3) as pool:
        accepted = [pool.submit(server.ask, "/v1/detect", JPEG) for _ in range(3)]
        while 'requests{model="slow"} 3.0' not in server.ask("/metrics").body.decode():
            pass
        server.process.send_signal(signal.SIGTERM)
        while server.ask("/readyz").status == 200:
            pass
        assert server.ask("/readyz").error[:2] == (503, "ending")
        assert server.ask("/healthz").status == 200
        refused = server.ask("/v1/detect", JPEG)
        assert refused.error[:2] == (503, "ending") and refused.headers["connection"] == "close"
        assert [future.result().status for future in accepted] == [200, 200, 200]
        assert server.process.wait(20) == 0


def test_insecure_opens_any_address_to_any_name_and_an_end_waits_for_no_request_for_ever():
    with (
        running(*MODEL, "--timeout", 0.5, "--host", "0.0.0.0", "--insecure") as server,
        server.connect(b"POST /v1/detect HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"),
        server.connect(b"GET /"),
        server.connect(),
    ):
        assert server.ask("/v1/detect", JPEG, headers={"Host": "example.org"}).status == 200
        assert server.end() == 0


def test_a_second_signal_ends_at_once():
    with running("--weights", "stuck=x", "--timeout", 600) as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.ask, "/v1/detect", JPEG)
        while 'requests{model="stuck"} 1.0' not in server.ask("/metrics").body.decode():
            pass
        server.process.send_signal(signal.SIGINT)
        server.ask("/readyz")
        assert server.end(signal.SIGINT) == 0
        assert asked.result(20).error[:2] == (503, "ending")


def test_a_signal_while_a_model_is_started_ends_the_server(tmp_path):
    with running("--weights", f"late={tmp_path}/never.pt", ready=False) as server:
        assert server.end() == 0


def test_without_fastapi_the_command_that_installs_it_is_told(tmp_path):
    (tmp_path / "fastapi.py").write_text("raise ImportError(name='fastapi')")
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from utils.serve import __main__ as m;"
    code += "from utils.processes.command import run_command as r; r(m.main)"
    process = start(*MODEL, command=["-c", code, tmp_path])
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert output.startswith("error: python -m utils.serve needs fastapi: pip install fastapi==")
