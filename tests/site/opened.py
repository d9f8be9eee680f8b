"""A page of the site as a browser shows it: what is wrong with it, by size and colours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.browser.chromium import Page

PHONE, DESKTOP = 390, 1280
VIEWS = [(width, dark) for width in (PHONE, DESKTOP) for dark in (False, True)]
TRIES, STEP = 200, 25  # of waiting in the page; milliseconds


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which a folder is served, on the loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def show(page: Page, width: int, dark: bool) -> None:
    """Show an open page at another width and in other colours."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    page.call("Emulation.setEmulatedMedia", features=[scheme])
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
              deviceScaleFactor=1, mobile=width < 600)  # fmt: skip


def wait_for(page: Page, expression: str) -> Any:
    """The value of a JavaScript expression once it is true; False if it never is."""
    waiting = f"""(async () => {{
        for (let i = 0; i < {TRIES}; i++) {{
            const value = {expression};
            if (value) return value;
            await new Promise(done => setTimeout(done, {STEP}));
        }}
        return false;
    }})()"""
    answer = page.call(
        "Runtime.evaluate", expression=waiting, awaitPromise=True, returnByValue=True
    )
    assert "exceptionDetails" not in answer, answer
    return answer["result"]["value"]


def faults(page: Page, root: str) -> list[str]:
    """What went wrong since a page was opened: errors, lost files, requests to other places.

    Args:
        root: the address that all requests must begin with.
    """
    outside = [
        url for url in page.requested() if not url.startswith((root, "data:", "about:", "blob:"))
    ]
    return [f"outside: {url}" for url in outside] + page.complaints() + list(_told(page))


def _told(page: Page) -> Iterator[str]:
    for event in page.events:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            yield f"exception: {parameters['exceptionDetails']['text']}"
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            yield f"console: {parameters['args']}"
        elif method == "Network.loadingFailed" and not parameters.get("canceled"):
            yield f"failed: {parameters['errorText']}"
        elif method == "Network.responseReceived" and parameters["response"]["status"] >= 400:
            yield f"{parameters['response']['status']}: {parameters['response']['url']}"
