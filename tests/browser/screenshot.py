"""Take an image of a page: python -m tests.browser.screenshot PAGE IMAGE [--width N] [--dark]"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.browser.chromium import chromium


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.browser.screenshot")
    parser.add_argument("page", type=Path)
    parser.add_argument("image", type=Path, help="file to write")
    parser.add_argument("--width", type=int, default=1100, help="of the window, pixels")
    parser.add_argument("--dark", action="store_true", help="as who prefers dark colours sees it")
    options = parser.parse_args()
    with chromium() as page:
        page.open(options.page, options.width, dark=options.dark)
        page.screenshot(options.image)


if __name__ == "__main__":
    main()
