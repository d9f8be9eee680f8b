"""The glossaries of both languages, made from one list of terms.

    python -m tests.glossary_pages

writes docs/en/glossary.md and docs/zh/glossary.md from docs/glossary.yaml.
`tests/unit/docs/test_glossary.py` holds the pages against the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from utils.files.project import PROJECT
from utils.files.yaml import read_yaml

DOCS = PROJECT / "docs"
TERMS = DOCS / "glossary.yaml"


class Language(NamedTuple):
    """What the page of a language has around the terms."""

    heading: str
    columns: tuple[str, ...]  # the keys of a term
    titles: tuple[str, ...]


LANGUAGES = {
    "en": Language(
        "# Glossary\n\n"
        "Words of this field and of this project, in English and in Chinese. The pages keep to "
        "them.\n",
        ("en", "zh", "meaning_en"),
        ("English", "Chinese", "meaning"),
    ),
    "zh": Language(
        "# 术语表\n\n"
        "本领域和本项目的常用术语，中英文对照，文档统一使用这些说法。“不要写成”一栏列出容易误译或混淆的说法。\n",
        ("zh", "en", "meaning_zh", "not"),
        ("中文", "英文", "说明", "不要写成"),
    ),
}


def pages(terms: Path = TERMS) -> dict[Path, str]:
    """Return the pages, in Markdown."""
    document = read_yaml("glossary", terms, "")
    return {
        DOCS / name / "glossary.md": "\n".join([language.heading, *sections(document, name)])
        for name, language in LANGUAGES.items()
    }


def sections(document: Mapping[str, Mapping], name: str) -> Iterable[str]:
    """Yield each section of a language: its title and its table."""
    language = LANGUAGES[name]
    for section in document.values():
        terms = sorted(section["terms"], key=lambda term: term["en"].lower())
        rows = [" | ".join(term.get(key, "") for key in language.columns) for term in terms]
        lines = [" | ".join(language.titles), *rows]
        lines = [f"| {line} |".replace("  |", " |") for line in lines]
        lines.insert(1, "|" + "---|" * len(language.titles))
        yield "\n".join([f"## {section[name]}\n", *lines]) + "\n"


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
