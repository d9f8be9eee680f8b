"""Blocks of the pages: their first lines, what is kept of their output, and how it is compared.

`tests/site/test_copied_pages.py` runs them as the site shows them.
"""

import pytest

from tests.docs_blocks.blocks import (
    BLOCKS,
    Block,
    BlockError,
    Copied,
    all_blocks,
    code_blocks,
    difference,
)
from tests.docs_blocks.pages import Cell, Page, commands_of, names, problems_of, run_page


def test_every_output_has_its_block():
    files = {path.stem for path in BLOCKS.iterdir() if path.suffix in (".out", ".json")}
    assert names() and files <= set(all_blocks())


def page_of(text, language="python", shown="", name="tutorials/one"):
    """A page of one block of code and its output."""
    block = Block(BLOCKS / "one-of-a-test.py")
    code = Cell(Copied(language, text), block if shown else None, ".py" if shown else "")
    return Page(name, [code, *([Cell(Copied("text", shown), block, ".out")] if shown else [])])


@pytest.mark.parametrize(
    ("language", "text", "message"),
    [
        ("python", "raise SystemExit(3)", "ends with exit code 3"),
        ("python", "open('absent.txt')", "absent.txt"),
        ("python", "import train", "imports train, which is not installed"),
        ("python", "from tests.small import write_small_dataset", "imports tests"),
        ("bash", "python -c 'exit(\"absent\")'", "absent"),
        ("bash", "python a.py | head", "a command is"),
    ],
)
def test_unrunnable_block_is_an_error(language, text, message):
    with pytest.raises(BlockError, match=message):
        run_page(page_of(text, language))


def test_tutorial_blocks_share_names_in_an_empty_folder():
    page = page_of("import os\nseen = os.listdir()")
    page.cells += [
        Cell(Copied("yaml", "names: [cat]", file="data/cats.yaml")),
        Cell(Copied("python", "print(seen, os.listdir('data'))")),
        Cell(Copied("bash", "duet train --device 0")),  # cannot run here
    ]
    run_page(page)
    assert [cell.printed for cell in page.cells] == ["", None, "[] ['cats.yaml']\n", None]


def test_output_differing_from_its_code_is_a_problem():
    page = Page("tutorials/one", [])
    block = Block(BLOCKS / "one-of-a-test.py")
    code = Cell(Copied("python", ""), block, ".py", printed="1\n")
    page.cells = [code, Cell(Copied("text", "2"), block, ".out")]
    assert "printed:\n1" in problems_of(page)[0]
    page.cells.reverse()
    assert problems_of(page)[0] == "one-of-a-test.out does not stand below its code"


def test_code_is_extracted_as_the_copy_button_does():
    html = """
    <div class="tabbed-set tabbed-alternate"><input type="radio"><div class="tabbed-labels">
    <label for="a"><a href="#a">PyTorch</a></label><label for="b">OneFlow</label></div>
    <div class="tabbed-content"><div class="tabbed-block"><p>Text.</p><div
    class="language-python highlight"><pre><span></span><code><span class="n">a</span> &lt; 1
    </code></pre></div></div><div class="tabbed-block">
    <div class="language-bash highlight"><pre><code>b</code></pre></div></div></div></div>
    <div class="language-yaml highlight"><span class="filename">c.yaml</span><pre><code>c: 1
    </code></pre></div>"""
    assert code_blocks(html) == [
        Copied("python", "a < 1", "", "PyTorch"),
        Copied("bash", "b", "", "OneFlow"),
        Copied("yaml", "c: 1", "c.yaml", ""),
    ]


def test_long_commands_get_small_run_flags():
    text = "duet train \\\n--epochs 9  # long\npython val.py\n"
    assert commands_of(text, "--epochs 1") == [
        ["duet", "train", "--epochs", "9", "--epochs", "1"],
        ["python", "val.py", "--epochs", "1"],
    ]


@pytest.mark.parametrize(
    ("tolerance", "old", "new", "agree"),
    [
        (0, "a 1.0\n", "a 1.0\n", True),
        (0, "a 1.0\n", "a 1.00\n", False),
        (0, "a\n", "a", False),
        (1e-3, "loss 0.5000  x", "loss 0.5009 x", True),
        (1e-3, "loss 0.5000", "loss 0.5021", False),
        (1e-3, "2000 px", "2001.9 px", True),  # relative above 1
        (1e-3, "loss 0.5", "losses 0.5", False),
        (1e-3, "0.5 0.6", "0.5", False),
        (1e-3, "loss 0.5", "loss nan", False),
        (float("inf"), "12 ms", "7e3 ms", True),
    ],
)
def test_numbers_compare_within_tolerance_and_text_exactly(tmp_path, tolerance, old, new, agree):
    block = Block(tmp_path / "b.py", ("torch",), (), tolerance)
    assert (difference(block, old, new) == "") == agree
