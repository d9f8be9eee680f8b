"""Notebooks that the site makes of tutorials: valid ones, whose cells print what they show."""

import json

import pytest

from docs.site.notebooks import notebook
from duet.utils.project import PROJECT

DOCS = PROJECT / "docs"
TUTORIALS = sorted(DOCS.glob("*/tutorials/[0-9]*.md"))


def cells_of(page):
    document = json.loads(notebook(page.read_text(encoding="utf-8"), DOCS))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    assert document["metadata"]["kernelspec"]["name"] == "python3"
    return document["cells"]


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: str(page.relative_to(DOCS)))
def test_notebook_cells_are_text_or_valid_python(page):
    cells = cells_of(page)
    assert [cell["id"] for cell in cells] == [f"cell-{number}" for number in range(len(cells))]
    for cell in cells:
        assert "--8<--" not in cell["source"]
        if cell["cell_type"] == "code" and not cell["source"].startswith("!duet "):
            compile(cell["source"], cell["id"], "exec")
            assert "# Runs " not in cell["source"]
        elif cell["cell_type"] == "markdown":
            assert set(cell) == {"cell_type", "metadata", "source", "id"}
    assert cells[0]["source"].startswith("# ")
    assert any(cell["cell_type"] == "code" for cell in cells) or "15-" in page.name
    assert any("**" in cell["source"] for cell in cells[-2:])  # the answers are not lost


def test_page_text_becomes_notebook_text(tmp_path):
    page = """# A page

See [this](other.md) and [that](https://example.org). ![A figure](a.svg#only-light)

=== "PyTorch"

    ```bash
    pip install duet
    ```

```bash
duet train \\
    --epochs 1
```

??? note "Answers"

    1. One.
"""
    cells = json.loads(notebook(page, tmp_path))["cells"]
    texts = [(cell["cell_type"], cell["source"]) for cell in cells]
    first = "# A page\n\nSee this and [that](https://example.org). \n\n**PyTorch**"
    assert texts[0] == ("markdown", first)
    assert texts[1] == ("markdown", "```bash\npip install duet\n```")
    assert texts[2] == ("code", "!duet train --epochs 1")
    assert texts[3] == ("markdown", "**Answers**\n\n1. One.")
