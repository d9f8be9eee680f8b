"""`make docs` builds what is there in both languages, and ends at what is wrong in a page."""

import shutil
from pathlib import Path

import pytest

from duet.utils.files.json_files import read_json
from duet.utils.project import PROJECT
from tests.environments import build_site

MEGABYTES = 18  # of it 11 are HTML, 1.5 the two search indexes


def pages() -> set[Path]:
    """The English pages, below their folder."""
    folder = PROJECT / "docs" / "en"
    return {path.relative_to(folder) for path in folder.rglob("*.md")}


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project: the configuration, and a page with its two languages."""
    root = tmp_path_factory.mktemp("project")
    text = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")
    (root / "mkdocs.yml").write_text(text.partition("\nnav:")[0], encoding="utf-8")
    shutil.copytree(PROJECT / "docs" / "site", root / "docs" / "site")
    (root / "docs" / "blocks").mkdir()
    for language in ("en", "zh"):
        (root / "docs" / language).mkdir()
    (root / "train.py").write_text("print('trained')\n")
    return root


@pytest.fixture
def project(copied: Path) -> Path:
    docs = copied / "docs"
    for language in ("en", "zh"):
        for page in (docs / language).iterdir():
            page.unlink()
        (docs / language / "index.md").write_text("# Duet\n\nHome.\n")
    return copied


def test_each_page_is_built_in_both_languages(site):
    assert Path("index.md") in pages() and len(pages()) > 20
    for page in pages():
        assert (site / page.with_suffix(".html")).is_file()
        assert (site / "zh" / page.with_suffix(".html")).is_file()


def test_site_stays_below_its_size_limit(site):
    weight = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    assert weight < MEGABYTES * 1e6
    assert not list(site.rglob("*.map"))  # sources of the theme's scripts


@pytest.mark.parametrize(("folder", "word"), [(".", "PyTorch"), ("zh", "检测器")])
def test_each_language_indexes_its_own_pages(site, folder, word):
    entries = read_json(site / folder / "search/search_index.json")["docs"]
    places = {entry["location"].partition("#")[0] for entry in entries}
    assert places == {path.with_suffix(".html").as_posix() for path in pages()}
    home = [entry["text"] for entry in entries if entry["location"].startswith("index.html")]
    assert word in "".join(home).replace("\u200b", "")  # it stands between words of Chinese


def test_repository_values_and_files_are_included_in_a_page(project, tmp_path):
    (project / "docs/blocks/demo.json").write_text('{"map50": 0.684}')
    (project / "docs/blocks/demo.py").write_text("print(1)\n")
    (project / "docs/en/index.md").write_text(
        "# Duet\n\nIt reaches {{ demo.map50 }}, see [train.py](../../train.py).\n\n"
        '```python\n--8<-- "blocks/demo.py"\n```\n\n$$\na < \\frac{b}{2}\n$$\n\nfor $a$, at 5 $.\n'
    )
    done = build_site(project, tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "index.html").read_text()
    assert "It reaches 0.684, see" in page and 'href="source/train.py.txt"' in page
    assert (tmp_path / "source/train.py.txt").read_text() == "print('trained')\n"
    assert 'class="nb">print' in page
    assert 'display="block"><mrow><mi>a</mi><mo>&#x0003C;</mo><mfrac>' in page
    assert page.count("<math ") == 2 and "at 5 $." in page


WRONG = {
    "See [it](absent.md).": "'absent.md'",
    "See [it](#absent).": "'#absent'",
    "See [it](../../absent.py).": "'../../absent.py'",
    "<!-- source: train.py absent -->": "no source for <!-- source: train.py absent -->",
    "{{ absent.key }}": "no value for {{ absent.key }}",
    "![](absent.svg)": "'absent.svg'",
    r"It is $\left( a$.": r"no formula: \left( a",
    r"It is $\absent{b}$.": r"no formula: \absent{b}",
}


def test_missing_references_fail_the_build(project, tmp_path):
    (project / "docs/en/index.md").write_text("# Duet\n\n" + "\n\n".join(WRONG))
    done = build_site(project, tmp_path)
    assert done.returncode != 0
    assert [reported for reported in WRONG.values() if reported not in done.stderr] == []


def test_missing_block_fails_the_build(project, tmp_path):
    (project / "docs/en/index.md").write_text('# Duet\n\n```\n--8<-- "blocks/absent.out"\n```\n')
    done = build_site(project, tmp_path)
    assert done.returncode != 0 and "blocks/absent.out" in done.stderr


def test_missing_translation_fails_the_build(project, tmp_path):
    for page in ("en/a", "zh/b", "en/c", "zh/c"):
        (project / "docs" / f"{page}.md").write_text("# A page\n")
    done = build_site(project, tmp_path)
    reported = {
        line.rpartition(" -  ")[2] for line in done.stderr.splitlines() if "WARNING" in line
    }
    assert done.returncode != 0
    assert {
        "docs/en/a.md has no page docs/zh/a.md",
        "docs/zh/b.md has no page docs/en/b.md",
    } <= reported
