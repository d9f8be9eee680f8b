"""Show progress as a bar or log lines, and log without breaking the bar."""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tqdm import tqdm

from duet.backend.processes import this_process
from duet.utils.text import as_message, discard_unread, write_what_cannot_be_encoded

# Fits 80 columns with a two-digit epoch and three losses; longer ones are truncated.
BAR = "{desc} |{bar}| {n_fmt}/{total_fmt}, {remaining} left{postfix}"
LINE = "{desc}: {n_fmt} of {total_fmt} {unit}, {remaining} left{postfix}"
ENDLESS = "{desc}: {n_fmt} {unit}, {elapsed}{postfix}"  # if the total is unknown

LINE_SECONDS = 30.0  # between log lines if there is no terminal

clock = tqdm.format_interval  # seconds as "03:05" or "1:03:05"
log = logging.getLogger("progress")
CLEAR_LINE = "\r\033[K"


class _Bar(tqdm):
    """tqdm without its lock across processes, which would fix the program's start method of
    multiprocessing, and without its thread.
    """

    monitor_interval = 0


_Bar.set_lock(threading.RLock())


class _Lines(io.TextIOBase):
    def write(self, text: str) -> int:
        if line := text.strip():
            log.info("%s", line)
        return len(text)


class Progress:
    """Shows the progress of some work until the block ends, then removes the bar.

    Only the main process shows it. Threads may share it. Without a terminal, it logs a line now and
    then.
    """

    def __init__(self, total: int | None, title: str, unit: str, done: int = 0) -> None:
        """Begin work of `total` units, such as "batches", of which `done` are already done.

        Args:
            total: None if unknown.
        """
        is_bar, self._lock = sys.stderr.isatty(), threading.Lock()
        self._with_total = BAR if is_bar else LINE
        where: dict[str, Any] = {"dynamic_ncols": True}
        if not is_bar:
            where = {"file": _Lines(), "mininterval": LINE_SECONDS, "delay": LINE_SECONDS,
                     "position": 0}  # fmt: skip
        self._bar = _Bar(
            total=total, initial=done, desc=title, unit=unit, leave=False, smoothing=0, miniters=1,
            bar_format=ENDLESS if total is None else self._with_total,
            disable=not this_process().is_main, **where,
        )  # fmt: skip

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def expect(self, total: int) -> None:
        """Set the total if it was unknown at the start."""
        with self._lock:
            self._bar.total, self._bar.bar_format = total, self._with_total

    def update(self, note: str = "") -> None:
        """Advance by one unit; the note is shown next to the bar."""
        with self._lock:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update()


class LineHandler(logging.StreamHandler):
    """Writes log records on their own lines: it clears the bar and redraws it."""

    _is_incomplete = False

    def format(self, record: logging.LogRecord) -> str:
        return as_message(super().format(record))

    def emit(self, record: logging.LogRecord) -> None:
        if not sys.stderr.isatty():  # no bar; `_Lines` may hold tqdm's lock and wait for ours
            return super().emit(record)
        with _Bar.external_write_mode(file=self.stream):
            if self.stream.isatty():
                self.stream.write(CLEAR_LINE)  # another rank's bar may be there
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Continue without a log if its reader has exited or its disk is full."""
        error = sys.exc_info()[1]
        if isinstance(error, BrokenPipeError):
            discard_unread()
        elif not isinstance(error, OSError):
            super().handleError(record)
        elif not self._is_incomplete:
            self._is_incomplete = True
            with suppress(OSError):  # after `2>&1`
                text = f"the log cannot be written: {error.strerror}; going on without it\n"
                sys.stderr.write(text)


class _Kept(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


@contextmanager
def held_back(log: logging.Logger) -> Iterator[list[logging.LogRecord]]:
    """Hold back a logger's records in the block, for `log.handle` after other lines.

    If the block fails, they are logged at once: they may say why.
    """
    records: list[logging.LogRecord] = []
    keep = _Kept(records)
    propagated, log.propagate = log.propagate, False
    log.addHandler(keep)
    failed = True
    try:
        yield records
        failed = False
    finally:
        log.removeHandler(keep)
        log.propagate = propagated
        for record in records if failed else ():
            log.handle(record)


def begin_lines(speaker: str, level: int) -> None:
    """Configure logging: records and Python warnings go to standard output.

    Args:
        speaker: written before each record.
        level: the lowest level that is written.
    """
    write_what_cannot_be_encoded()
    handler = LineHandler(sys.stdout)
    logging.basicConfig(format=f"{speaker}%(message)s", level=level, handlers=[handler])
    logging.captureWarnings(True)
