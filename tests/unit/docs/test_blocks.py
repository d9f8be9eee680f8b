"""The blocks of the pages print what is stored beside them."""

from __future__ import annotations

import sys

import pytest

from duet import backend
from tests.docs_blocks.blocks import (
    BLOCKS,
    Block,
    BlockError,
    all_blocks,
    commands_of,
    difference,
    read_block,
    run_block,
)
from tests.docs_blocks.mistakes import answer, flags_taken

BACKEND = backend.use()


@pytest.mark.parametrize(
    "block",
    [block for block in all_blocks() if BACKEND in block.backends],
    ids=lambda block: block.path.name,
)
def test_a_block_prints_what_its_page_shows(block):
    for suffix, text in run_block(block).files().items():
        assert difference(block, block.stored(suffix), text) == ""


def test_every_output_has_its_block():
    names = [block.name for block in all_blocks()]
    assert len(set(names)) == len(names)
    assert {path.stem for path in BLOCKS.iterdir() if path.is_file()} == set(names)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("b.py", "print(1)\n", 'first line is none of "# Runs on torch and oneflow.", '),
        ("b.py", "# Runs without a framework.\n# Needs a.png.\n", "needs a.png; known: "),
        ("b.py", "# Runs without a framework.\nraise SystemExit(3)\n", "ends with exit code 3"),
        ("b.sh", "# Runs without a framework.\npython -c 'exit(\"absent\")'\n", "absent"),
        ("b.sh", "# Runs without a framework.\npython a.py | head\n", "without a shell"),
    ],
)
def test_a_block_that_cannot_run_is_an_error(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(BlockError, match=message):
        run_block(read_block(tmp_path / name))


def test_a_long_command_runs_small():
    text = "# Runs small here: --epochs 1\npython train.py \\\n--epochs 9  # long\npython val.py\n"
    assert commands_of(text) == [
        [sys.executable, "train.py", "--epochs", "9", "--epochs", "1"],
        [sys.executable, "val.py"],
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
def test_numbers_are_compared_to_the_tolerance_and_all_else_exactly(
    tmp_path, tolerance, old, new, agree
):
    block = Block(tmp_path / "b.py", ("torch",), (), tolerance)
    assert (difference(block, old, new) == "") == agree


def test_a_refused_command_is_shown_with_its_message():
    assert flags_taken("val.py --weights a.pt --data b.yaml") == "accepted"
    assert flags_taken("val.py --merge").startswith("--merge is not supported")
    assert answer("train.py --weights absent.pt").startswith("error: --weights absent.pt: no such")
