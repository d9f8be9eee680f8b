"""A headless Chromium that a test opens a page in, spoken to through its DevTools pipe."""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser import install
from tests.browser.install import AXE, AXE_SCRIPT, installed_folder

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
REMEDY = "no Chromium: python3 -m tests.browser.install, or name one by CHROMIUM"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
)  # fmt: skip
SECONDS = 60
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{fonts}</dir><cachedir>{cache}</cachedir></fontconfig>
"""
# The browser reads commands from descriptor 3 and answers on 4.
WITH_PIPES = """
import fcntl, os, sys
high = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for descriptor, wanted in zip(high, (3, 4)):
    os.dup2(descriptor, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str:
    """CHROMIUM, the one that `install` made, or one on PATH; without one the test is skipped.

    It fails instead where REQUIRE_BROWSER=1.
    """
    installed = install.folder() / "chromium"
    candidates = [os.environ.get("CHROMIUM"), str(installed) if installed.exists() else None]
    candidates += [shutil.which(name) for name in NAMES]
    found = next((path for path in candidates if path), None)
    if found is None:
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail(REMEDY)
        pytest.skip(REMEDY)
    return found


class Page:
    """A page in a browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._arrivals = select.poll()
        self._arrivals.register(answers, select.POLLIN)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def attach(self) -> None:
        """To a tab of the browser."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a DevTools command and wait for its answer; events on the way are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not self._arrivals.poll(1000 * SECONDS):
                raise TimeoutError(f"no answer of the browser for {SECONDS} s")
            received = os.read(self._answers, 1 << 16)
            assert received, "the browser ended"
            self._buffer += received
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, page: Path | str, width: int, height: int = 900, dark: bool = False) -> None:
        """Load a file, or an address, at a size of the window, until its load event."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        self.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def choose_file(self, selector: str, path: Path) -> None:
        """Choose a file in an input of the page, as its dialog does."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path.resolve())])

    def requested(self) -> list[str]:
        """What the page asked for since it was opened."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """What the browser's console holds against the page."""
        return [
            event["params"]["entry"]["text"]
            for event in self.events
            if event.get("method") == "Log.entryAdded"
        ]


@contextmanager
def chromium() -> Iterator[Page]:
    """A browser with an empty profile, ended with the block."""
    program = find_chromium()
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                sys.executable, "-c", WITH_PIPES, str(to_browser[0]), str(from_browser[1]),
                program, *FLAGS, f"--user-data-dir={profile}", "about:blank",
            ],
            pass_fds=(to_browser[0], from_browser[1]),
            env=_environment(Path(program), profile),
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            page = Page(to_browser[1], from_browser[0])
            page.attach()
            yield page
        finally:
            process.kill()
            process.wait(SECONDS)
            os.close(to_browser[1])
            os.close(from_browser[0])


def _environment(program: Path, profile: str) -> dict[str, str]:
    """With the libraries and fonts that lie beside an installed browser."""
    beside = program.parent
    if beside != install.folder():
        return dict(os.environ)
    configuration = Path(profile, "fonts.xml")
    configuration.write_text(FONTS.format(fonts=beside / "fonts", cache=profile), encoding="utf-8")
    libraries = {"LD_LIBRARY_PATH": str(beside / "lib"), "FONTCONFIG_FILE": str(configuration)}
    return {**os.environ, **libraries}


AXE_REMEDY = "no axe-core: python3 -m tests.browser.install"
# No style sheet is fetched once more: a page that is a file could not.
RUN = """axe.run(document, { resultTypes: ["violations"], preload: false, rules: RULES })
  .then(({ violations }) => violations.map(({ id, impact, help, nodes }) =>
    ({ id, impact, help, nodes: nodes.map(({ html }) => html.slice(0, 200)) })))"""


def violations(page: Page, without: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What axe-core holds against a page that is open: id, impact, help, nodes.

    without: ids of rules that are not tried.

    Without axe-core the test is skipped; it fails instead where REQUIRE_BROWSER=1.
    """
    script = installed_folder(AXE.name, AXE) / AXE_SCRIPT
    if not script.exists():
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail(AXE_REMEDY)
        pytest.skip(AXE_REMEDY)
    page.evaluate(script.read_text(encoding="utf-8") + ";0")
    rules = json.dumps({rule: {"enabled": False} for rule in without})
    run = RUN.replace("RULES", rules)
    answer = page.call("Runtime.evaluate", expression=run, awaitPromise=True, returnByValue=True)
    assert "exceptionDetails" not in answer, answer
    return answer["result"]["value"]
