"""The progress of pip, read from its output.

Standard library only, and no syntax newer than Python 3.8: see `utils/setup/environments.py`.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

UNITS = {"bytes": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}
FETCHED = re.compile(
    r" *(?P<how>Downloading|Using cached) (?P<name>\S+) \((?P<size>\d+(?:\.\d+)?) (?P<unit>\w+)\)"
)


class PipOutput:
    """The state of `pip install`."""

    def __init__(self) -> None:
        self.now = ""  # what goes on, in words
        self._packages, self._megabytes = 0, 0.0
        self._rest = ""

    def read(self, text: str) -> None:
        """Take what pip has printed since the last call; it may end within a line."""
        lines, _, self._rest = (self._rest + text).rpartition("\n")
        for line in lines.splitlines():
            self._read_line(line)

    def fetched(self) -> str:
        """Return how many packages were fetched, and how much of them was downloaded."""
        return f"packages: {self._packages}, downloaded: {self._megabytes:,.0f} MB"

    def _read_line(self, line: str) -> None:
        found = FETCHED.match(line)
        if found and not found["name"].endswith(".metadata"):  # of a package that may come later
            self._packages += 1
            name = "-".join(unquote(found["name"]).rpartition("/")[2].split("-")[:2])
            size = float(found["size"]) * UNITS.get(found["unit"], 0.0)
            if found["how"] == "Downloading":
                self._megabytes += size
                self.now = f"downloading {name} ({found['size']} {found['unit']})"
            else:
                self.now = f"{name} is in pip's cache"
        elif line.startswith("Processing "):
            self._packages += 1
            self.now = f"reading {line.split()[1].rpartition('/')[2]}"
        elif line.startswith("Installing collected packages"):
            self.now = "unpacking"
