"""Chinese pages are set as Chinese is: full-width punctuation, a space beside Latin letters."""

from __future__ import annotations

import re

import pytest

from utils.files.project import PROJECT

FOLDER = PROJECT / "docs" / "zh"
PAGES = sorted(FOLDER.rglob("*.md"))
# What is no running text: code, marks of HTML, targets of links. An image stands by itself.
CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.DOTALL | re.MULTILINE)
ALONE = re.compile(r"!\[([^\]]*)\]\([^)]*\)|\{:? *[.#:][^}]*\}")
MARKS = re.compile(r"<[^>]+>|\]\([^)]*\)|\[|\*\*")
HAN = "[\u3400-\u9fff]"
WRONG = re.compile(
    rf"{HAN}[A-Za-z0-9`{{]|[A-Za-z0-9`}}]{HAN}|{HAN} ?[,;:?]|[,;]{HAN}|{HAN}\n(?={HAN})"
)


def wrongly_set(text):
    """The places where a space or a full-width mark is missing, with what is around them."""
    prose = MARKS.sub("", ALONE.sub(r"\n\n\1\n\n", CODE.sub("", text)))
    return [prose[max(found.start() - 5, 0) : found.end() + 5] for found in WRONG.finditer(prose)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(FOLDER)))
def test_a_chinese_page_is_set_as_chinese_is(page):
    assert wrongly_set(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("批次有 16 张图像，用 `--img` 设置。", 0),
        ("见[术语表](../glossary.md)。**尺寸。** 宽 {{ one-step.x }} 倍\n\n下一段", 0),
        ("```bash\n图a,b\n```\n\n[开始](a.md){ .md-button }", 0),
        ("批次有16张图像", 2),
        ("用`--img`设置", 2),
        ("批次,图像", 1),
        ("批次:图像", 1),
        ("一段\n两行", 1),
    ],
)
def test_what_is_wrong_is_found(text, found):
    assert len(wrongly_set(text)) == found
