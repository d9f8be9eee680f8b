"""Progress of a piece of work, as a bar or lines, and log lines that do not break the bar."""

from __future__ import annotations

import logging
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Iterable

from tqdm import tqdm

from backend.processes import this_process
from utils.text import as_message, discard_unread, write_what_cannot_be_encoded

# 80 columns hold it with an epoch of four digits and three losses; a longer one is cut at its end.
BAR = "{desc} |{bar}| {n_fmt}/{total_fmt}, {remaining} left{postfix}"
ENDLESS = "{desc} {n_fmt}, {elapsed}{postfix}"  # of work whose end nobody knows

LINE_SECONDS = 30.0  # between two lines where there is no terminal

log = logging.getLogger("progress")
CLEAR_LINE = "\r\033[K"
NO_BREAK = "\u00a0"


class Progress:
    """Shows the progress of a piece of work until the block ends; the bar is then removed.

    Of several processes only the first shows it. Threads may share it.
    """

    def __init__(self, total: int | None, title: str, unit: str, done: int = 0) -> None:
        """Begin work of so many units, as "batches", of which some may be done already.

        Args:
            total: None if it is not known.
        """
        self._total, self._title, self._unit = total, title, unit
        self._begun_with = self._done = done
        self._start = self._told = time.monotonic()
        self._lock = threading.Lock()
        is_main = this_process().is_main
        bar = is_main and sys.stderr.isatty()
        self._bar = tqdm(
            total=total, initial=done, desc=title, leave=False, dynamic_ncols=True,
            bar_format=ENDLESS if total is None else BAR, disable=not bar,
        )  # fmt: skip
        self._writes_lines = is_main and not bar

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def expect(self, total: int) -> None:
        """Say how many units there are, if that was not known at the start."""
        with self._lock:
            self._total = self._bar.total = total
            self._bar.bar_format = BAR

    def update(self, note: str = "") -> None:
        """Count a unit that is done; the note is shown next to the bar."""
        with self._lock:
            self._done += 1
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update()
            now = time.monotonic()
            if (
                self._writes_lines
                and now >= self._told + LINE_SECONDS
                and self._done != self._total
            ):
                self._told = now
                log.info("%s", self._line(now - self._start, note))

    def _line(self, seconds: float, note: str) -> str:
        if self._total is None:
            line = f"{self._title}: {self._done:,} {self._unit}, {clock(seconds)}"
        else:
            left = seconds * (self._total - self._done) / (self._done - self._begun_with)
            done = f"{self._done:,} of {self._total:,} {self._unit}"
            line = f"{self._title}: {done}, {clock(left)} left"
        return f"{line}, {note}" if note else line


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds, "3:05", or as hours too, "1:03:05"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class LineHandler(logging.StreamHandler):
    """Writes log records, each on lines of its own: a bar is cleared first and drawn again."""

    def format(self, record: logging.LogRecord) -> str:
        return as_message(super().format(record))

    def emit(self, record: logging.LogRecord) -> None:
        with tqdm.external_write_mode(file=self.stream):
            if self.stream.isatty():
                self.stream.write(CLEAR_LINE)  # another rank's bar may stand there
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Go on without a log once its reader has ended; the work matters more."""
        if isinstance(sys.exc_info()[1], BrokenPipeError):
            discard_unread()
        else:
            super().handleError(record)


def begin_lines(speaker: str, level: int) -> None:
    """Write log records and Python's warnings to standard output, each on its own line.

    Args:
        speaker: written before each record.
        level: of the least important records that are written.
    """
    write_what_cannot_be_encoded()
    handler = LineHandler(sys.stdout)
    logging.basicConfig(format=f"{speaker}%(message)s", level=level, handlers=[handler])
    logging.captureWarnings(True)


def joined(parts: Iterable[str]) -> str:
    """Return parts of a line with two spaces between them.

    On a terminal that is too narrow the line is broken between parts; a log has it whole.
    """
    line = "  ".join(part.replace(" ", NO_BREAK) for part in parts)
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        line = textwrap.fill(line, max(width, 20), subsequent_indent="  ", break_on_hyphens=False)
    return line.replace(NO_BREAK, " ")
