"""The built site in a browser: pages without faults on a phone, and a search that finds."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Page, chromium

PHONE, DESKTOP = 390, 1280
OTHERS = ("404.html",)  # made by the theme
SWITCH = re.compile(r'duet-switch" href="([^"]+)"')
WIDTH = "document.documentElement.scrollWidth"
TRIES, STEP = 200, 25  # of waiting in the page; milliseconds
BROKEN = """[...document.images].filter(image => !image.loading && image.complete &&
    !image.naturalWidth).map(image => image.src)"""
SEARCH = """(() => {{
    const query = document.querySelector("input.md-search__input");
    query.focus();
    query.value = {0!r};
    query.dispatchEvent(new Event("input", {{bubbles: true}}));
    query.dispatchEvent(new KeyboardEvent("keyup", {{bubbles: true}}));
}})()"""
FOUND = """(items => items.length && items.map(item => item.href))(
    [...document.querySelectorAll(".md-search-result__item > a")])"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as opened:
        yield opened


def names(site: Path) -> list[str]:
    """The pages of both languages, below the site's folder."""
    found = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html"))]
    return [name for name in found if name not in OTHERS]


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
    """Errors since the page was opened, and requests to anywhere but the site."""
    inside = (root, "data:", "about:", "blob:")
    outside = [url for url in page.requested() if not url.startswith(inside)]
    thrown = [
        event["params"]["exceptionDetails"]["text"]
        for event in page.events
        if event.get("method") == "Runtime.exceptionThrown"
    ]
    return [*outside, *thrown, *page.complaints()]


def test_pages_have_no_fault_and_fit_a_phone(page, site):
    problems = {}
    for name in names(site):
        page.open(site / name, PHONE)
        found = [*page.evaluate(BROKEN), *faults(page, site.as_uri())]
        if not wait_for(page, f"{WIDTH} <= innerWidth"):
            found.append(f"{page.evaluate(WIDTH)} px wide on {PHONE} px")
        if found:
            problems[name] = found
    assert problems == {}


def test_the_switch_leads_to_the_same_page_in_the_other_language(site):
    for name in names(site):
        (link,) = SWITCH.findall((site / name).read_text(encoding="utf-8"))
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
        assert target == (name.removeprefix("zh/") if name.startswith("zh/") else f"zh/{name}")
        assert (site / target).is_file()


@pytest.mark.parametrize(
    ("start", "query", "wanted"),
    [
        ("index.html", "mosaic", "augmentation.html"),
        ("zh/index.html", "参数", "zh/train-flags.html"),
    ],
)
def test_search_finds_the_pages_of_its_language(page, site, start, query, wanted):
    root = site.as_uri()
    page.open(f"{root}/{start}", DESKTOP)
    page.evaluate(SEARCH.format(query))
    found = wait_for(page, FOUND)
    assert found, page.complaints()
    places = [link.removeprefix(f"{root}/").partition("#")[0].partition("?")[0] for link in found]
    assert wanted in places
    assert all(place.startswith("zh/") == start.startswith("zh/") for place in places)
    assert faults(page, root) == []
