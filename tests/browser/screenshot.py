"""Take an image of a page: python -m tests.browser.screenshot PAGE IMAGE [WIDTH] [dark]"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.browser.chromium import chromium


def main() -> None:
    source, target, *options = sys.argv[1:]
    width = next((int(option) for option in options if option.isdecimal()), 1100)
    with chromium() as page:
        page.open(Path(source), width, dark="dark" in options)
        page.screenshot(Path(target))


if __name__ == "__main__":
    main()
