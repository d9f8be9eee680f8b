"""The page of a server of models in a browser, and what a user does with it."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

from tests.browser.chromium import Page

SECONDS = 60  # a limit against hanging
# The clipboard of a browser without a window is none; what is copied is kept on the page.
CLIPBOARD = """Object.defineProperty(navigator, "clipboard",
  { value: { writeText: async (text) => { window.copied = text; } } });"""
DROP = """(() => {
  const data = new DataTransfer();
  data.items.add(new File([Uint8Array.from(atob(%s), (c) => c.charCodeAt(0))], %s));
  const init = { bubbles: true, cancelable: true, %s: data };
  document.body.dispatchEvent(new %s("%s", init));
})()"""


class ServePage:
    """A browser at the page of a server."""

    def __init__(self, page: Page, root: str) -> None:
        self.page, self.root = page, root

    def open(self, width: int = 1280, dark: bool = False) -> None:
        self.page.open(f"{self.root}/", width, dark=dark)
        self.page.evaluate(CLIPBOARD)

    def evaluate(self, expression: str) -> Any:
        return self.page.evaluate(expression)

    def until(self, expression: str) -> Any:
        """Wait for an expression to be true; return its value."""
        deadline = time.monotonic() + SECONDS
        while not (value := self.evaluate(expression)):
            state = self.said(), self.problem(), self.page.complaints()
            assert time.monotonic() < deadline, (expression, state)
            time.sleep(0.01)
        return value

    def choose(self, path: Path) -> str:
        """Choose a file; return what the page says, or complains of, once it is done."""
        self.page.choose_file("#file", path)
        return self.done()

    def done(self) -> str:
        return self.until(
            "(document.querySelector('#problem').textContent"
            " || (said.classList.contains('busy') ? '' : said.textContent))"
        )

    def give(self, path: Path, how: str) -> str:
        """Drop a file on the page, or paste it; as `choose`."""
        kind, field = {"drop": ("DragEvent", "dataTransfer"),
                       "paste": ("ClipboardEvent", "clipboardData")}[how]  # fmt: skip
        content = json.dumps(base64.b64encode(path.read_bytes()).decode())
        self.evaluate(DROP % (content, json.dumps(path.name), field, kind, how))
        return self.done()

    def said(self) -> str:
        return self.evaluate("said.textContent")

    def problem(self) -> str:
        return self.evaluate("problem.textContent")

    def set(self, name: str, value: float | bool) -> None:
        """Move a slider, or set a checkbox, and wait until it acts."""
        field = "checked" if isinstance(value, bool) else "value"
        self.page.call(
            "Runtime.evaluate",
            expression=f"""new Promise((resolve) => {{
              const input = document.getElementById({json.dumps(name)});
              input.{field} = {json.dumps(value)};
              for (const kind of ["input", "change"]) input.dispatchEvent(new Event(kind));
              requestAnimationFrame(() => requestAnimationFrame(resolve));
            }})""",
            awaitPromise=True,
        )

    def copied(self) -> dict[str, Any]:
        """What "Copy as JSON" copies."""
        self.evaluate("window.copied = ''; document.querySelector('#copy').click()")
        return json.loads(self.until("window.copied"))

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self.page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                           windowsVirtualKeyCode=code)  # fmt: skip

    def rows(self) -> list[str]:
        """The names and scores of the list."""
        cells = "[...row.querySelectorAll('.name, .score')].map((cell) => cell.textContent)"
        return self.evaluate(
            f"[...document.querySelectorAll('#list li')].map((row) => {cells}.join(' '))"
        )

    def boxes(self) -> list[list[float]]:
        """Left, top, right, bottom of each box as a fraction of the image, best first."""
        return self.evaluate(
            """(() => {
              const view = document.querySelector("#view").getBoundingClientRect();
              const part = ({ left, top, right, bottom }) => [
                (left - view.left) / view.width, (top - view.top) / view.height,
                (right - view.left) / view.width, (bottom - view.top) / view.height];
              return [...document.querySelectorAll(".box")]
                .sort((one, other) => one.dataset.index - other.dataset.index)
                .map((box) => part(box.querySelector(".area").getBoundingClientRect()));
            })()"""
        )
