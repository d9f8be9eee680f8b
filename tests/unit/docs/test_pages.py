"""Pages include what is there, the same in both languages; so do the READMEs, which stay short."""

from __future__ import annotations

import json
import re

import pytest

from duet.utils.project import PROJECT
from tests.docs_blocks.blocks import BLOCKS

DOCS = PROJECT / "docs"
PAGES = sorted([*DOCS.glob("en/**/*.md"), *DOCS.glob("zh/**/*.md")])
# `--8<-- "blocks/NAME.py"`, perhaps with a section or lines; `;--8<--` shows the mark itself.
INCLUDED = re.compile(r'(?<!;)--8<-- "([^":]+)(?::([\w:,-]+))?"')
SPOILED = re.compile(r"--8 ?< ?--(?! \")|--8 < --")
FIGURE = re.compile(r"figures/([\w.-]+?)\.(en|zh)\.svg")
VALUE = re.compile(r"\{\{ *([\w-]+)\.([\w-]+) *\}\}")


def included_in(text):
    """What a page takes from elsewhere: files with sections and figures, in order, and values."""
    marks = [(found[1], found[2] or "") for found in INCLUDED.finditer(text)]
    values = sorted({f"{name}.{key}" for name, key in VALUE.findall(text)})
    return marks, [name for name, _ in FIGURE.findall(text)], values


def problems_of(text):
    """What a page includes that is not there, and marks that mean nothing."""
    found = [f"{mark} includes nothing" for mark in SPOILED.findall(text)]
    for name, section in included_in(text)[0]:
        path = DOCS / name
        if not path.is_file():
            found.append(f"{name} is not there")
        elif section[:1].isalpha() and f"[start:{section}]" not in path.read_text(encoding="utf-8"):
            found.append(f"{name} has no section {section}")
    for name, key in VALUE.findall(text):
        path = BLOCKS / f"{name}.json"
        values = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if key not in values:
            found.append(f"{name}.json has no {key}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_everything_that_a_page_includes_is_there(page):
    text = page.read_text(encoding="utf-8")
    assert problems_of(text) == []
    assert {language for _, language in FIGURE.findall(text)} <= set(page.relative_to(DOCS).parts)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "zh" in page.relative_to(DOCS).parts],
    ids=lambda page: str(page.relative_to(DOCS)),
)
def test_both_languages_include_the_same(page):
    other = DOCS / "en" / page.relative_to(DOCS / "zh")
    text = page.read_text(encoding="utf-8").replace(".zh.svg", ".en.svg")
    assert included_in(text) == included_in(other.read_text(encoding="utf-8"))


def test_every_block_is_on_a_page():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    files, _, values = included_in(text)
    used = {name.rpartition("/")[2].partition(".")[0] for name, _ in files}
    used |= {value.partition(".")[0] for value in values}
    files = [path for path in BLOCKS.iterdir() if path.is_file() and path.name != "ruff.toml"]
    assert {path.stem for path in files} <= used


ENGLISH, CHINESE = PROJECT / "README.md", PROJECT / "README.zh.md"
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r" *#.*")
LINK = re.compile(r"\]\(([^)#]+)")
MOST_WORDS = 700  # what a newcomer reads in a few minutes


def commands_of(text):
    """The blocks of code of a page, without their comments."""
    return [COMMENT.sub("", block) for block in FENCE.findall(text)]


def links_of(text):
    """The files that a page leads to, those of a Chinese page as the English ones."""
    return [link.replace("docs/zh/", "docs/en/") for link in LINK.findall(text)]


def test_both_have_the_same_commands_and_the_same_links_in_the_same_order():
    english, chinese = (path.read_text(encoding="utf-8") for path in (ENGLISH, CHINESE))
    assert commands_of(english) == commands_of(chinese)
    first, *others = links_of(english)
    assert (first, links_of(chinese)[0]) == (CHINESE.name, ENGLISH.name)  # each leads to the other
    assert links_of(chinese)[1:] == others


@pytest.mark.parametrize("path", [ENGLISH, CHINESE], ids=lambda path: path.name)
def test_every_link_leads_to_a_file(path):
    links = LINK.findall(path.read_text(encoding="utf-8"))
    assert [link for link in links if not (PROJECT / link).is_file()] == []


def test_every_tutorial_is_linked_from_its_task():
    folder = PROJECT / "docs" / "en" / "tutorials"
    tutorials = {f"docs/en/tutorials/{path.name}" for path in folder.glob("*.md")}
    assert tutorials and tutorials <= set(links_of(ENGLISH.read_text(encoding="utf-8")))


def test_a_newcomer_reads_it_in_minutes():
    assert len(ENGLISH.read_text(encoding="utf-8").split()) <= MOST_WORDS
