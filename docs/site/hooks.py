"""What the site needs besides its generator's plugins; mkdocs.yml names this file as its hooks.

- A page of one language alone is an error.
- `{{ NAME.key }}` in running text is the value of that key in docs/blocks/NAME.json.
- `<!-- source: PATH NAME -->` is a function or method of the repository, with its line numbers.
- A formula stands between dollar signs, as a code host takes it; it becomes MathML.
- A tutorial has a notebook, which its page offers for download: notebooks.py.
- A link to a file of the repository is relative, as a code host takes it: `../../train.py` in
  docs/en. The site holds a copy of that file, as text, below source/.
- Flags, short names and figures of a table are not broken at a line's end; long paths break at "/".
- Each language has a search index of its own, so that each search finds its own pages. Each flag
  of a page of flags is an entry of it, and a page is found first by its words in mkdocs.yml.

Errors are warnings of MkDocs here: `strict` in mkdocs.yml ends the build because of them.
"""

import ast
import json
import logging
import posixpath
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from html import unescape
from pathlib import Path, PurePosixPath
from typing import Any

import jieba
from latex2mathml.converter import convert
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

from docs.site.notebooks import notebook
from duet.utils.files.json_files import read_json

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"
DEFAULT, OTHER = "en", "zh"
LETTERS = str.maketrans("0123456789", "ghijklmnop")  # digits make the search's index lose words
LATEST = -200  # after all plugins
FIRST = 200  # before them
# What is shown as it is, not as text.
SHOWN = {".md", ".html", ".png", ".svg", ".webp"}
LINK = re.compile(r"(\]\()(\.\.?/[^)\s#]+)")
VALUE = re.compile(r"\{\{ *([\w-]+)\.([\w-]+) *\}\}")
SOURCE = re.compile(r"^<!-- source: ([\w/.]+) ([\w.]+) -->$", re.MULTILINE)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
PRE = re.compile(r"(<pre\b.*?</pre>)", re.DOTALL)
INLINE = re.compile(r"<code>([^<]+)</code>")
CELL = re.compile(r"<(td|th)\b([^>]*)>(.*?)</\1>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")
UNITS = re.compile(r"\b(?:to|s|ms|px|MB|GB|MiB|GiB|min)\b")
LONG_WORD = re.compile(r"[A-Za-z_]{2}|[\u3400-\u9fff]{3}")
# Browsers break no line before a hyphen, not even between a Chinese comma and a flag.
FOLLOWED = re.compile(
    r'(<span class="duet-formula">(?:(?!</span>).)*</span>)([，。；：、）.,;:)])', re.DOTALL
)
TIED = re.compile(r'(?<=[，。；：、）])<code>(?=<span class="duet-whole">-)')
NAME = re.compile(r"(?<![\w-])(?:--[a-z][\w-]*|mAP50-95)")  # of a flag or a figure, in text
WHOLE = '<span class="duet-whole">{}</span>'
# Comments of blocks that are for tools, in their own words or as docs_blocks reads them.
FOR_TOOLS = re.compile(
    r' *<span class="c1"># (?:noqa|fmt): [^<]*</span>|'
    r'<span class="c1"># (?:Runs|Needs|Shows lines|Numbers) [^<]*</span>\n'
)
ROW = re.compile(r"<tr>\s*<td([^>]*)>(.*?)</td>\s*<td[^>]*>(.*?)</td>", re.DOTALL)
FLAG = re.compile(r"<code>--([a-z][\w-]*)</code>")
FLAG_PAGES = "-flags"  # how the names of pages of flags end
DOWNLOAD = {DEFAULT: "Download as a notebook", OTHER: "下载 notebook"}
OFTEN = ("export", "val", "detect", "train")  # the last first, where several have a flag
LONGEST_CODE, LONGEST_WORD = 20, 28  # characters that stay on one line; a phone shows about 40
DIALOG = 'data-md-component="search" role="dialog"'
ALTERNATE = re.compile(r'<link rel="alternate"[^>]*>\s*')
BASE = re.compile(r'("base": "[^"]*?)/?\.\."')

log = logging.getLogger("mkdocs.hooks.duet")
flag_entries: dict[str, dict[str, Any]] = {}  # of the search, by their location


@event_priority(FIRST)
def on_config(config: Any) -> Any:
    """Name the pages of one language alone."""
    jieba.dt.tmp_dir = sys.prefix  # else its cache is a file that anybody may put into /tmp
    jieba.setLogLevel(logging.WARNING)
    for problem in translation_problems():
        log.warning(problem)
    return config


def pages(language: str) -> set[str]:
    """Return the pages of a language, below its folder."""
    folder = DOCS / language
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}


def translation_problems() -> Iterator[str]:
    """Yield the pages that one language lacks."""
    english, chinese = pages(DEFAULT), pages(OTHER)
    for page in sorted(english - chinese):
        yield f"docs/{DEFAULT}/{page} has no page docs/{OTHER}/{page}"
    for page in sorted(chinese - english):
        yield f"docs/{OTHER}/{page} has no page docs/{DEFAULT}/{page}"


@event_priority(LATEST)
def on_files(files: Any, config: Any) -> Any:
    """Add the files of the repository that pages link to.

    The sources of the theme's scripts, for who changes the theme, are left out: 1.3 MB.
    """
    linked = {
        path
        for page in files.documentation_pages()
        for path in linked_files(page.content_string, page.src_uri)
    }
    for page in [page for page in files.documentation_pages() if is_tutorial(page.src_uri)]:
        content = notebook(VALUE.sub(partial(value, page=page.src_uri), page.content_string), DOCS)
        files.append(File.generated(config, notebook_of(page.src_uri), content=content))
    for path in sorted(linked):
        content = (PROJECT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, copy_of(path), content=content))
    # Sources of scripts, and word lists of languages that no page is in.
    for file in [file for file in files if file.src_uri.endswith((".map", "wordcut.js"))]:
        files.remove(file)
    return files


def is_tutorial(page: str) -> bool:
    """Return whether a page, as "en/tutorials/08-map.md", has a notebook."""
    path = PurePosixPath(page)
    return path.parent.name == "tutorials" and path.stem != "index"


def notebook_of(page: str) -> str:
    """Return where the site holds the notebook of a tutorial."""
    language, _, name = PurePosixPath(page).with_suffix(".ipynb").parts
    return f"notebooks/{language}/{name}"


def copy_of(path: str) -> str:
    """Return where the site holds a file of the repository."""
    return f"source/{path}.txt"


def linked_files(text: str, page: str) -> set[str]:
    """Return the files of the repository, as paths in it, that a page links to and MkDocs lacks."""
    found = (repository_path(match[2], page) for match in LINK.finditer(text))
    return {path for path in found if path}


def repository_path(link: str, page: str) -> str | None:
    """Return the file that a link of a page means; None if the site shows it, or it is not there.

    Args:
        link: relative, as "../../train.py".
        page: below docs, as "en/api.md".
    """
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    inside = not path.startswith("..") and (PROJECT / path).is_file()
    shown = path.startswith("docs/") and PurePosixPath(path).suffix in SHOWN
    return path if inside and (not shown or path.startswith("docs/examples/")) else None


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Put values into the text, and links to the copies of files."""
    source = page.file.src_uri

    def copied(match: re.Match[str]) -> str:
        path = repository_path(match[2], source)
        if path is None:
            return match[0]
        return match[1] + posixpath.relpath(copy_of(path), posixpath.dirname(source))

    if is_tutorial(source):
        link = posixpath.relpath(notebook_of(source), posixpath.dirname(source))
        words = DOWNLOAD[source.partition("/")[0]]
        title, _, rest = markdown.partition("\n")
        markdown = f"{title}\n\n[{words}]({link}){{ .duet-notebook download }}\n{rest}"
    markdown = SOURCE.sub(partial(quoted, page=source), markdown)
    return LINK.sub(copied, VALUE.sub(lambda match: value(match, source), markdown))


def quoted(match: re.Match[str], page: str) -> str:
    """Return a function of the repository as a block of code, with its own line numbers."""
    path, name = match.groups()
    try:
        lines = (PROJECT / path).read_text(encoding="utf-8").splitlines()
        node: Any = ast.parse("\n".join(lines))
        for part in name.split("."):
            node = next(one for one in node.body if getattr(one, "name", "") == part)
    except (OSError, SyntaxError, StopIteration) as error:
        log.warning(f"{page}: no source for {match[0]}: {error!r}")
        return match[0]
    code = "\n".join(lines[node.lineno - 1 : node.end_lineno])
    return f'```python title="{path}" linenums="{node.lineno}"\n{textwrap.dedent(code)}\n```'


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Make MathML of formulas, which stand between dollar signs; keep names and figures whole."""

    def shown(match: re.Match[str]) -> str:
        tag, latex = match.groups()
        try:
            formula = convert(unescape(latex), display="block" if tag == "div" else "inline")
            if "\\" in formula:
                raise ValueError("a command that is not known")
        except Exception as error:  # each kind of mistake has a class of its own
            log.warning(f"{page.file.src_uri}: no formula: {latex}: {error!r}")
            return match[0]
        return f'<{tag} class="duet-formula">{formula}</{tag}>'

    if page.file.src_uri.endswith(f"{FLAG_PAGES}.md"):
        html = ROW.sub(lambda row: found_flag(row, page.url), html)
    parts = PRE.split(FORMULA.sub(shown, html))
    return "".join(
        FOR_TOOLS.sub("", part) if part.startswith("<pre") else kept_whole(part) for part in parts
    )


def found_flag(row: re.Match[str], url: str) -> str:
    """Return a row of a flag with an anchor, and make an entry of the search for it."""
    names = FLAG.findall(row[2])
    if not names or f"{url}#{names[0]}" in flag_entries:
        return row[0]
    command = PurePosixPath(url).stem.removesuffix(FLAG_PAGES)
    text = unescape(TAG.sub("", row[3]))
    flag_entries[f"{url}#{names[0]}"] = {
        "location": f"{url}#{names[0]}",
        "title": f"{', '.join(f'--{name}' for name in names)} · {command}",
        "text": "\u200b".join(jieba.cut(text)) if url.startswith(f"{OTHER}/") else text,
        # duet.js asks for them where a query has hyphens; else pages come first.
        "tags": ["flag", *(f"flag{name.replace('-', '')}" for name in names)],
        "boost": 0.001 * (1 + (OFTEN.index(command) + 1 if command in OFTEN else 0)),
    }
    return row[0].replace(f"<td{row[1]}>", f'<td{row[1]} id="{names[0]}">', 1)


def kept_whole(html: str) -> str:
    """Return HTML in which a line does not end within a flag, a short name or a figure of a table.

    A browser breaks after each hyphen: "--" would end a line and "data" begin the next one. It also
    makes a column of text as narrow as its longest word, where others are wide, and begins a line
    with the full stop behind a formula.
    """
    html = FOLLOWED.sub(r'<span class="duet-whole">\1\2</span>', html)
    return CELL.sub(kept_cell, TIED.sub("<wbr><code>", INLINE.sub(kept_code, html)))


def kept_code(match: re.Match[str]) -> str:
    """Return inline code: whole if it is short, else broken at spaces, and at "/" in long words."""

    def word(text: str) -> str:
        if len(unescape(text)) > LONGEST_WORD:
            return re.sub(r"(/|::)(?=\w)", r"\1<wbr>", text)
        return WHOLE.format(text) if "-" in text else text

    text = match[1]
    if len(unescape(text)) <= LONGEST_CODE:
        return f"<code>{WHOLE.format(text) if '-' in text else text}</code>"
    return f"<code>{' '.join(map(word, text.split(' ')))}</code>"


def kept_cell(match: re.Match[str]) -> str:
    """Return a cell of a table: figures and short headings whole, long text in a wide column."""
    tag, attributes, content = match.groups()
    text = unescape(TAG.sub("", content)).strip()
    figure = re.search(r"\d", text) and not LONG_WORD.search(UNITS.sub("", text))
    heading = tag == "th" and " " not in text and (text.isascii() or len(text) <= 6)
    if len(text) <= LONGEST_WORD and (figure or heading):
        return f'<{tag}{attributes} class="duet-whole">{content}</{tag}>'
    if len(text) > LONGEST_WORD:
        attributes += ' class="duet-text"'
    if "<" not in content:
        content = NAME.sub(lambda found: WHOLE.format(found[0]), content)
    return f"<{tag}{attributes}>{content}</{tag}>"


def value(match: re.Match[str], page: str) -> str:
    """Return a value of docs/blocks as text; one that is not there is a warning."""
    name, key = match.groups()
    try:
        return str(read_json(DOCS / "blocks" / f"{name}.json")[key])
    except (OSError, ValueError, KeyError) as error:
        log.warning(f"{page}: no value for {match[0]}: {error!r}")
        return match[0]


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Fit the theme to pages that are files, and to those who hear a page.

    The theme asks for a sitemap at each alternate link, which a browser refuses to a file; the
    switch between the languages is a plain link. The search of a Chinese page takes the index of
    its language: `split_index`. The dialog of the search has a name.
    """
    chinese = page.url.startswith(f"{OTHER}/")
    output = ALTERNATE.sub("", output)
    output = output.replace(DIALOG, f'{DIALOG} aria-label="{"搜索" if chinese else "Search"}"')
    return BASE.sub(_inner, output, count=1) if chinese else output


def _inner(match: re.Match[str]) -> str:
    return f'{match[1]}"' if not match[1].endswith('"') else f'{match[1]}."'


@event_priority(LATEST)
def on_post_build(config: Any) -> None:
    """Write the index of each language, as JSON and as the script that file:// needs."""
    site = Path(config["site_dir"])
    index = read_json(site / "search" / "search_index.json")
    for entry in index["docs"]:
        page = PurePosixPath(entry["location"].removeprefix(f"{OTHER}/")).with_suffix(".md")
        if words := config["extra"].get("searched", {}).get(str(page)):
            entry["tags"] = [word_tag(word) for word in words]
    for folder, entries in split_index([*index["docs"], *flag_entries.values()]).items():
        text = json.dumps({**index, "docs": entries}, ensure_ascii=False, separators=(",", ":"))
        place = site / folder / "search"
        place.mkdir(parents=True, exist_ok=True)
        (place / "search_index.json").write_text(text, encoding="utf-8")
        (place / "search_index.js").write_text(f"var __index = {text}", encoding="utf-8")


def word_tag(word: str) -> str:
    """Return the tag of a word; duet.js asks for that of a Chinese one as a whole.

    The theme cuts "数据增强" and "数据集" alike to "数据".
    """
    codes = "".join(f"{ord(one):x}" for one in word)
    return word if word.isascii() else f"word{codes.translate(LETTERS)}"


def split_index(entries: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the entries by the folder of their language, with locations below that folder."""
    prefix = f"{OTHER}/"
    others = [entry for entry in entries if entry["location"].startswith(prefix)]
    return {
        ".": [entry for entry in entries if not entry["location"].startswith(prefix)],
        OTHER: [{**entry, "location": entry["location"].removeprefix(prefix)} for entry in others],
    }
