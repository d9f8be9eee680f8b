"""The blocks of the pages print what is stored beside them; what is wrong with one is found."""

from __future__ import annotations

import sys

import pytest

import backend
from tests.docs_blocks.block import Block, BlockError, all_blocks, read_block
from tests.docs_blocks.command import main
from tests.docs_blocks.mistakes import answer, flags_taken
from tests.docs_blocks.outputs import as_json, differences, stored, write
from tests.docs_blocks.running import commands_of, run_block
from utils.files.project import PROJECT

BLOCKS = all_blocks()
HEAD = "# Runs on torch and oneflow.\n"


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.path.name)
def test_a_block_prints_what_its_page_shows(block):
    if backend.use() not in block.backends:
        pytest.skip(f"runs on {block.backends[0]} alone")
    outcome = run_block(block)
    assert differences(block, stored(block, ".out"), outcome.printed) == ""
    values = as_json(outcome.values) if outcome.values else ""
    assert differences(block, stored(block, ".json"), values) == ""


def test_every_output_has_its_block():
    names = {block.name for block in BLOCKS}
    assert len(names) == len(BLOCKS)
    files = (PROJECT / "docs" / "blocks").iterdir()
    assert {path.stem for path in files if path.is_file()} == names


def block_of(folder, text, name="block.py"):
    path = folder / name
    path.write_text(text)
    return read_block(path)


def test_a_block_says_where_it_runs_what_it_needs_and_how_exact_it_is(tmp_path):
    lines = "# Runs on torch.", "# Needs bus.jpg, images.", "# Numbers agree to 1e-3.", "print(1)"
    block = block_of(tmp_path, "\n".join(["# --8<-- [start:page]", *lines]))
    assert block == Block(tmp_path / "block.py", ("torch",), ("bus.jpg", "images"), 1e-3)
    assert block_of(tmp_path, HEAD + "# Numbers differ from run to run.\n").tolerance == float(
        "inf"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("print(1)\n", 'its first line is none of "# Runs on torch and oneflow.", '),
        ("# Runs on jax.\n", "its first line is none of"),
        (HEAD + "# Needs bus.jpg\n", "'# Needs bus.jpg' is not understood"),
        (HEAD + "# Numbers agree to 1%.\n", "'# Numbers agree to 1%.' is not understood"),
        (HEAD + "# Needs bus.png.\n", "needs bus.png; known: best.safetensors, "),
    ],
)
def test_first_lines_that_mean_nothing_are_an_error(tmp_path, text, told):
    with pytest.raises(BlockError, match=told):
        block_of(tmp_path, text)


def test_a_python_block_runs_in_an_empty_folder_with_what_it_needs(tmp_path):
    code = """# Runs without a framework.
# Needs bus.jpg, shapes.
from pathlib import Path

print(sorted(path.name for path in Path().iterdir() if not path.is_symlink()))
print(Path("models/yolov5n.yaml").is_file(), Path().absolute() / "shapes")
values = {"a": 1.5}
"""
    outcome = run_block(block_of(tmp_path, code))
    assert outcome.printed == "['bus.jpg', 'shapes']\nTrue shapes\n"
    assert outcome.values == {"a": 1.5}


def test_a_block_may_show_some_of_its_lines(tmp_path):
    code = "# Runs without a framework.\n# Shows lines with mAP50, best:.\n"
    code += "print('mAP50 1\\nmAP 2\\nbest: 3')\n"
    assert run_block(block_of(tmp_path, code)).printed == "mAP50 1\nbest: 3\n"


def test_a_block_may_import_another_one(tmp_path):
    block_of(tmp_path, "# Runs without a framework.\nprint('made')\nnumber = 7\n", "other_one.py")
    code = "# Runs without a framework.\nfrom other_one import number\n\nprint(number)\n"
    for _ in range(2):
        assert run_block(block_of(tmp_path, code)).printed == "made\n7\n"
    assert "other_one" not in sys.modules and str(tmp_path) not in sys.path


def test_commands_run_one_by_one_and_see_each_other_s_files(tmp_path):
    code = """# Runs without a framework.
python -c 'open("left", "w").write("here")'
python -c 'print(open("left").read(), __import__("sys").argv[1:])' \\
    --epochs 9
"""
    assert run_block(block_of(tmp_path, code, "b.sh")).printed == "here ['--epochs', '9']\n"


def test_a_block_that_ends_its_process_is_an_error(tmp_path):
    with pytest.raises(BlockError, match="block.py ends with exit code 3"):
        run_block(block_of(tmp_path, HEAD + "raise SystemExit(3)\n"))


def test_a_command_that_fails_is_an_error_with_what_it_said(tmp_path):
    code = "# Runs without a framework.\npython -c 'raise SystemExit(\"no such thing\")'\n"
    with pytest.raises(BlockError, match="b.sh: .*\n*no such thing"):
        run_block(block_of(tmp_path, code, "b.sh"))


def test_a_long_command_runs_small():
    text = "# Runs small here: --epochs 1\npython train.py --epochs 9  # long\npython val.py\n"
    assert commands_of(text) == [
        [sys.executable, "train.py", "--epochs", "9", "--epochs", "1"],
        [sys.executable, "val.py"],
    ]


@pytest.mark.parametrize("line", ["ls", "python a.py | head", "python a.py > b", "rm -r x"])
def test_what_needs_a_shell_or_another_program_is_refused(line):
    with pytest.raises(BlockError, match="without a shell"):
        commands_of(line)


@pytest.mark.parametrize(
    ("tolerance", "old", "new", "told"),
    [
        (0, "a 1.0\n", "a 1.0\n", ""),
        (0, "a 1.0\n", "a 1.00\n", "'a 1.00' instead of 'a 1.0'"),
        (0, "a\nb\n", "a\n", "'' instead of 'b'"),
        (0, "a\n", "a", "'another end of line' instead of ''"),
        (1e-3, "loss 0.5000  x", "loss 0.5009 x", ""),
        (1e-3, "loss 0.5000", "loss 0.5021", "0.5021 instead of 0.5000"),
        (1e-3, "2000 px", "2001.9 px", ""),  # relative above 1
        (1e-3, "loss 0.5", "losses 0.5", "'losses #' instead of 'loss #'"),
        (1e-3, "0.5 0.6", "0.5", "'#' instead of '# #'"),
        (1e-3, "loss 0.5", "loss nan", "'loss nan' instead of 'loss #'"),
        (float("inf"), "12 ms", "7e3 ms", ""),
        (float("inf"), "12 ms", "12 s", "'# s' instead of '# ms'"),
    ],
)
def test_numbers_are_compared_to_the_tolerance_and_all_else_exactly(
    tmp_path, tolerance, old, new, told
):
    block = Block(tmp_path / "b.py", ("torch",), (), tolerance)
    assert differences(block, old, new) == told


def test_outputs_are_written_where_they_differ_and_removed_where_there_are_none(tmp_path):
    block = block_of(tmp_path, HEAD + "# Numbers agree to 1e-3.\nprint(0.5)\nvalues = {'é': 'ü'}\n")
    write(block, run_block(block))
    assert stored(block, ".out") == "0.5\n" and stored(block, ".json") == '{\n  "é": "ü"\n}\n'
    block = block_of(tmp_path, HEAD + "# Numbers agree to 1e-3.\nprint(0.5001)\n")
    write(block, run_block(block))
    assert stored(block, ".out") == "0.5\n" and not block.path.with_suffix(".json").exists()


def test_the_command_names_the_blocks_that_there_are(capsys):
    assert main(["no-such-block"]) == 2
    assert "there is no block no-such-block; there are " in capsys.readouterr().out


def test_a_command_that_is_refused_is_shown_with_its_message():
    assert flags_taken("val.py --weights a.pt --data b.yaml") == "accepted"
    assert flags_taken("val.py --dnn") == (
        "--dnn is not in this version: leave it out; --backend says what runs the model"
    )
    message = answer("train.py --weights absent.pt")
    assert message.startswith("error: --weights absent.pt: no such file; nothing is downloaded")
    assert max(map(len, message.splitlines())) <= 80


def test_a_command_that_is_not_refused_is_no_mistake_to_show(monkeypatch):
    monkeypatch.setattr("train.main", lambda: None)
    with pytest.raises(BlockError, match="train.py --resume: is not refused"):
        answer("train.py --resume")
