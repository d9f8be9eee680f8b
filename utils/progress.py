"""Progress of a piece of work, as a bar or lines, and log lines that do not break the bar."""

from __future__ import annotations

import io
import logging
import sys
import threading
from typing import Any

from tqdm import tqdm

from duet.backend.processes import this_process
from duet.utils.text import as_message, discard_unread, wrapped, write_what_cannot_be_encoded

# 80 columns hold it with an epoch of four digits and three losses; a longer one is cut at its end.
BAR = "{desc} |{bar}| {n_fmt}/{total_fmt}, {remaining} left{postfix}"
LINE = "{desc}: {n_fmt} of {total_fmt} {unit}, {remaining} left{postfix}"
ENDLESS = "{desc}: {n_fmt} {unit}, {elapsed}{postfix}"  # of work whose end nobody knows

LINE_SECONDS = 30.0  # between two lines where there is no terminal

log = logging.getLogger("progress")
CLEAR_LINE = "\r\033[K"


class _Lines(io.TextIOBase):
    """What a bar is written to where there is no terminal."""

    def write(self, text: str) -> int:
        if line := text.strip():
            log.info("%s", line)
        return len(text)


class Progress:
    """Shows the progress of a piece of work until the block ends; the bar is then removed.

    Of several processes only the first shows it. Threads may share it. Where there is no terminal
    a line comes from time to time.
    """

    def __init__(self, total: int | None, title: str, unit: str, done: int = 0) -> None:
        """Begin work of so many units, as "batches", of which some may be done already.

        Args:
            total: None if it is not known.
        """
        is_bar, self._lock = sys.stderr.isatty(), threading.Lock()
        self._with_total = BAR if is_bar else LINE
        where: dict[str, Any] = {"dynamic_ncols": True}
        if not is_bar:
            where = {"file": _Lines(), "mininterval": LINE_SECONDS, "delay": LINE_SECONDS,
                     "miniters": 1, "position": 0}  # fmt: skip
        self._bar = tqdm(
            total=total, initial=done, desc=title, unit=unit, leave=False, smoothing=0,
            bar_format=ENDLESS if total is None else self._with_total,
            disable=not this_process().is_main, **where,
        )  # fmt: skip

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def expect(self, total: int) -> None:
        """Take how many units there are, if that was not known at the start."""
        with self._lock:
            self._bar.total, self._bar.bar_format = total, self._with_total

    def update(self, note: str = "") -> None:
        """Count a unit that is done; the note is shown next to the bar."""
        with self._lock:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update()


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds, "3:05", or as hours too, "1:03:05"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class LineHandler(logging.StreamHandler):
    """Writes log records, each on lines of its own: a bar is cleared first and drawn again."""

    def format(self, record: logging.LogRecord) -> str:
        return wrapped(as_message(super().format(record)), self.stream)

    def emit(self, record: logging.LogRecord) -> None:
        if not sys.stderr.isatty():  # no bar; `_Lines` may hold tqdm's lock and wait for ours
            return super().emit(record)
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
