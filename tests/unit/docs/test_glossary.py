"""Both glossaries are those of the one list, and the list is in order."""

from __future__ import annotations

import pytest

from tests.glossary_pages import DOCS, TERMS, pages
from utils.files.yaml import read_yaml

ENTRIES = [
    term for section in read_yaml("glossary", TERMS, "").values() for term in section["terms"]
]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_is_made_from_the_list(language):
    path = DOCS / language / "glossary.md"
    assert path.read_text(encoding="utf-8") == pages()[path], "python -m tests.glossary_pages"


def test_every_term_has_both_languages_and_stands_once():
    for term in ENTRIES:
        assert set(term) - {"not"} == {"en", "zh", "meaning_en", "meaning_zh"}, term
        assert all(text and "|" not in text for text in term.values()), term
        assert term["zh"] not in term.get("not", "").split("、"), term
    for language in ("en", "zh"):
        names = [term[language].lower() for term in ENTRIES]
        assert sorted(names) == sorted(set(names))


def test_a_term_becomes_a_row_of_each_table(tmp_path):
    path = tmp_path / "terms.yaml"
    path.write_text(
        "a:\n  en: Part\n  zh: 部分\n  terms:\n"
        "    - {en: box, zh: 框, meaning_en: A box., meaning_zh: 矩形。}\n"
        "    - {en: anchor, zh: 锚框, meaning_en: A size., meaning_zh: 尺寸。, not: 锚点}\n",
        encoding="utf-8",
    )
    english, chinese = pages(path).values()
    assert english.endswith(
        "## Part\n\n| English | Chinese | meaning |\n|---|---|---|\n"
        "| anchor | 锚框 | A size. |\n| box | 框 | A box. |\n"
    )
    assert chinese.endswith("| 锚框 | anchor | 尺寸。 | 锚点 |\n| 框 | box | 矩形。 | |\n")
