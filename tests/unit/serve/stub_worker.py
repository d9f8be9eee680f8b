"""A worker without a model: `python -m tests.unit.serve.stub_worker DESCRIPTOR`.

It does what an image, or its weights, tell it to; `test_worker_process.py` says it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from utils.serve.frames import read_frame, start_of

WINDOW = 4


def main() -> None:
    link = socket.socket(fileno=int(sys.argv[1]))
    file = link.makefile("rb")

    def send(header: dict, body: bytes = b"") -> None:
        link.sendall(start_of(header, len(body)) + body)

    first = read_frame(file)
    assert first is not None
    weights = Path(first.header["settings"]["weights"])
    does = weights.read_text() if weights.exists() else "nothing"
    if does == "refuse":
        send({"error": "--weights: no such model"})
        return
    if does == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if does == "sleep":
        time.sleep(1000)
    if first.header["folder"]:
        made = Path(first.header["folder"], "made.onnx")
        made.write_text("converted")
        send({"converted": str(made)})
        return
    about = {"name": first.header["settings"]["name"], "pid": os.getpid(), "does": does}
    send({"ready": True, "model": about, "window": WINDOW})
    held: set[int] = set()
    most = 0
    waiting: set[int] = set()
    cancelled: list[int] = []
    while (frame := read_frame(file)) is not None:
        if "cancel" in frame.header:
            cancelled.append(frame.header["cancel"])
            if frame.header["cancel"] in waiting:
                held.remove(frame.header["cancel"])
                send({"id": frame.header["cancel"], "status": "given_up", "message": ""})
            continue
        number = frame.header["id"]
        held.add(number)
        most = max(most, len(held))
        word = frame.body.decode()
        if word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "hang":
            continue
        if word == "die late":
            threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGKILL)).start()
            continue
        if word == "wait":
            waiting.add(number)
            continue
        if word.startswith("die unless "):
            path = Path(word.removeprefix("die unless "))
            if not path.exists():
                path.write_text("")
                os.kill(os.getpid(), signal.SIGKILL)
        if word == "bad":
            send({"id": number, "status": "bad_image", "message": "not an image"})
        elif word == "class":
            send({"id": number, "status": "refused", "message": "classes 99"})
        elif word == "fail":
            send({"id": number, "status": "failed", "message": "the model failed"})
        elif word == "stranger":
            send({"id": number + 99, "status": "ok"})
        elif word == "no number":
            send({"id": [number]})
        elif word == "nonsense":
            link.sendall(b"\xff" * 100)
        elif word.startswith("slow"):
            given = send, held, number, {"word": word, "most": most}, frame.header
            threading.Timer(0.2, answer, given).start()
            continue
        else:
            told = {"word": word, "most": most, "cancelled": cancelled}
            answer(send, held, number, told, frame.header)
            continue
        held.remove(number)


def answer(send, held: set[int], number: int, told: dict, header: dict) -> None:
    body = json.dumps({**told, "asked": header, "pid": os.getpid()}).encode()
    held.remove(number)
    told = {"milliseconds": {"total": 1.5}, "count": 2, "media_type": "application/json"}
    send({"id": number, "status": "ok", **told}, body)


if __name__ == "__main__":
    main()
