"""A terminal of a given width, as a program sees it and as a person reads it."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
import threading

from utils.files.project import PROJECT

TOKEN = re.compile(rb"\033\[(\d*)([A-Za-z])|([\r\n])|([^\r\n\033]+)")


class Screen:
    """What stands on a terminal after it was sent bytes.

    Attributes:
        lines: top to bottom; a text that is too long for a line goes on in the next one.
        seen: every state of the line in which something was written.
    """

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.lines = [""]
        self.seen: list[str] = []
        self._row = self._column = 0

    def feed(self, content: bytes) -> None:
        """Do what a terminal does with text, returns, new lines, and the codes that tqdm sends."""
        for number, code, control, text in TOKEN.findall(content):
            if code == b"A":
                self._row = max(0, self._row - int(number or 1))
            elif code == b"K":
                self.lines[self._row] = self.lines[self._row][: self._column]
            elif control == b"\r":
                self._column = 0
            elif control == b"\n":
                self._next_line()
            else:
                assert not code, f"this code is not understood: {code!r}"
                self._write(text.decode())

    def shown(self) -> list[str]:
        """The lines without trailing spaces, and without the last ones that are empty."""
        return "\n".join(line.rstrip() for line in self.lines).rstrip("\n").split("\n")

    def _next_line(self) -> None:
        self._row, self._column = self._row + 1, 0
        if self._row == len(self.lines):
            self.lines.append("")

    def _write(self, text: str) -> None:
        for character in text:
            if self._column == self.columns:  # the next character alone moves the cursor on
                self._next_line()
            line = self.lines[self._row].ljust(self._column)
            self.lines[self._row] = line[: self._column] + character + line[self._column + 1 :]
            self._column += 1
        self.seen.append(self.lines[self._row].rstrip())


def run_on_terminal(code: str, columns: int, **environment: str) -> Screen:
    """Run Python code in a process whose outputs are a terminal; return what stands there."""
    main, program = os.openpty()
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    content: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(main, content))
    reader.start()
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=program, stdout=program, stderr=program,
        env={**inherited, **environment}, cwd=PROJECT, timeout=120, check=False,
    )  # fmt: skip
    os.close(program)
    reader.join()
    os.close(main)
    screen = Screen(columns)
    screen.feed(b"".join(content))
    assert done.returncode == 0, "\n".join(screen.shown())
    return screen


def _read_all(terminal: int, content: list[bytes]) -> None:
    while True:
        try:
            content.append(os.read(terminal, 65536))
        except OSError:  # as Linux says that nobody has the other end
            return
