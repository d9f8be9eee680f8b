"""The two READMEs say the same to a shell, lead to pages of the site, and stay short."""

from __future__ import annotations

import re

import pytest

from duet.utils.project import PROJECT

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
