"""Every page in a browser: files and served, on a phone and a desktop, in light and in dark."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.accessibility import violations
from tests.browser.chromium import Page, chromium
from tests.site.opened import DESKTOP, PHONE, VIEWS, faults, served, show, wait_for

OTHERS = ("404.html", "compare-page.html")  # made by the theme, and by compare.py
SWITCH = re.compile(r'duet-switch" href="([^"]+)"')
NOT_TRANSLATED = 'class="duet-untranslated"'
SCHEME = "document.body.dataset.mdColorScheme"
WIDTH = "document.documentElement.scrollWidth"
FITS = f"{WIDTH} <= innerWidth"  # once what moves at another width has come to rest
# A page makes what is wide scrollable from the keyboard once it is laid out: tables and code.
LAID_OUT = """[...document.querySelectorAll(
    ".md-typeset__scrollwrap, .md-typeset pre > code")].every(
    wide => wide.scrollWidth <= wide.clientWidth || wide.tabIndex === 0)"""
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


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[str]:
    with served(site) as address:
        yield address


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def names(site: Path) -> list[str]:
    """The pages of both languages, below the site's folder."""
    found = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html"))]
    return [name for name in found if name not in OTHERS]


def test_pages_have_no_fault_on_a_phone_and_a_desktop_in_light_and_in_dark(page, site, server):
    """Each page is opened once, every other one from the server, and shown in other ways then."""
    problems = {}
    for number, name in enumerate(names(site)):
        root = (site.as_uri(), server)[number % 2]
        page.open(f"{root}/{name}", PHONE)
        found = [] if page.evaluate(SCHEME) == "default" else ["not light where the system is"]
        for width in (PHONE, DESKTOP):
            show(page, width, dark=True)
            if not wait_for(page, f"{SCHEME} === 'slate'"):
                found.append("not dark where the system is")
            if not wait_for(page, FITS):
                found.append(f"{page.evaluate(WIDTH)} px wide on {width} px")
            found += page.evaluate(BROKEN)
        if found := [*found, *faults(page, root)]:
            problems[name] = found
    assert problems == {}


def test_nothing_keeps_people_from_a_page(page, site):
    """Each page once; widths and colours change from page to page, as all share their styles.

    What is shown in English for want of a translation is the same page. Contrast, half of the time,
    is measured in English: both languages have the same colours.
    """
    problems = {}
    pages = [name for name in names(site) if NOT_TRANSLATED not in read(site / name)]
    for number, name in enumerate(pages):
        width, dark = VIEWS[number % len(VIEWS)]
        page.open(site / name, width, dark=dark)
        wait_for(page, f"{SCHEME} === '{'slate' if dark else 'default'}'")
        wait_for(page, LAID_OUT)
        for fault in violations(page, ["color-contrast"] if name.startswith("zh/") else []):
            if fault["impact"] in ("serious", "critical"):
                problems.setdefault(fault["id"], []).append((name, width, dark, fault["nodes"][:2]))
    assert problems == {}


def test_the_switch_leads_to_the_same_page_in_the_other_language(page, site):
    for name in names(site):
        (link,) = SWITCH.findall(read(site / name))
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
        assert target == (name.removeprefix("zh/") if name.startswith("zh/") else f"zh/{name}")
        assert (site / target).is_file()
    page.open(site / "data.html", DESKTOP)
    for target, language in (("zh/data.html", "zh"), ("data.html", "en")):
        link = page.evaluate("document.querySelector('.duet-switch').href")
        assert link == (site / target).as_uri()
        page.open(link, DESKTOP)
        assert page.evaluate("document.documentElement.lang") == language


@pytest.mark.parametrize(
    ("start", "query", "wanted"),
    [
        ("index.html", "mosaic", "augmentation.html"),
        ("data.html", "suspend", "resume.html"),
        ("zh/index.html", "参数", "zh/train-flags.html"),
        ("zh/data.html", "没有的公开参数", "zh/detect-flags.html"),
    ],
)
@pytest.mark.parametrize("way", ["file", "server"])
def test_search_finds_the_pages_of_its_language(page, site, server, way, start, query, wanted):
    root = site.as_uri() if way == "file" else server
    page.open(f"{root}/{start}", DESKTOP)
    page.evaluate(SEARCH.format(query))
    found = wait_for(page, FOUND)
    assert found, page.complaints()
    places = [link.removeprefix(f"{root}/").partition("#")[0].partition("?")[0] for link in found]
    assert wanted in places
    assert all(place.startswith("zh/") == start.startswith("zh/") for place in places)
    assert faults(page, root) == []
