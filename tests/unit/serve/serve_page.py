"""The page of a server in a browser, and what a user does with it."""

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

    def __init__(self, page: Page, root: str, width: int = 1280, dark: bool = False) -> None:
        self.page = page
        page.open(f"{root}/", width, dark=dark)
        self.evaluate = page.evaluate
        page.evaluate(CLIPBOARD)

    def until(self, expression: str) -> Any:
        """Wait for an expression to be true; return its value."""
        deadline = time.monotonic() + SECONDS
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, (expression, self.page.complaints())
            time.sleep(0.01)
        return value

    def choose(self, path: Path) -> str:
        """Choose a file; return what the page says, or complains of, once it is done."""
        self.evaluate("said.textContent = ''")
        self.page.choose_file("#file", path)
        return self.done()

    def done(self) -> str:
        return self.until(
            "problem.textContent || (said.classList.contains('busy') ? '' : said.textContent)"
        )

    def give(self, path: Path, how: str) -> str:
        """Drop a file on the page, or paste it; as `choose`."""
        kind, field = {"drop": ("DragEvent", "dataTransfer"),
                       "paste": ("ClipboardEvent", "clipboardData")}[how]  # fmt: skip
        content = json.dumps(base64.b64encode(path.read_bytes()).decode())
        self.evaluate("said.textContent = ''")
        self.evaluate(DROP % (content, json.dumps(path.name), field, kind, how))
        return self.done()

    def set(self, name: str, value: float | bool) -> str:
        """Move a slider, or set a checkbox; as `choose`."""
        field = "checked" if isinstance(value, bool) else "value"
        self.evaluate(
            f"said.textContent = ''; {name}.{field} = {json.dumps(value)};"
            f"for (const kind of ['input', 'change']) {name}.dispatchEvent(new Event(kind))"
        )
        return self.done()

    def copied(self) -> dict[str, Any]:
        """What "Copy as JSON" copies."""
        self.evaluate("window.copied = ''; document.querySelector('#copy').click()")
        return json.loads(self.until("window.copied"))

    def texts(self, selector: str) -> list[str]:
        return self.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)"
        )
