"""A name server that answers nothing and writes each question to a file.

`python -m tests.distributed.name_server FILE ADDRESS...` on a machine of `network_namespaces.py`.
"""

from __future__ import annotations

import selectors
import socket
import sys
from pathlib import Path

PORT = 53


def main(file: Path, addresses: list[str]) -> None:
    selector = selectors.DefaultSelector()
    for address in addresses:
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind((address, PORT))
        selector.register(server, selectors.EVENT_READ)
    with file.open("ab", buffering=0) as questions:
        questions.write(b"listens\n")
        while True:
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                questions.write(repr(key.fileobj.recv(1024)).encode() + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
