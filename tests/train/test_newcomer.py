"""The commands of README.md and of the home page run in their order, as a newcomer types them.

`tests/unit/docs/test_pages.py` holds that the Chinese pages have the same.
"""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from duet import backend
from duet.utils.data.fetch.download import find_list
from duet.utils.project import PROJECT
from duet.utils.serve.config import parse_serve_flags
from tests.environments import SEVERAL
from tests.small import write_small_dataset, write_tiny_weights

PAGES = ("README.md", "docs/en/index.md")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CHECKOUT = ("data", "duet", "models", "utils", "backend")
SMALL = {"train": ["--img", "64", "--epochs", "1", "--batch", "4", "--noplots"]}
INSTALLS = ("pip", "make")  # makes environments


def run(words, folder):
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "YOLO_BACKEND": backend.use()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"


def fetch(name, files, folder):
    """Put small weights where the command would put what it downloads."""
    items = {item.name: item for item in find_list(name).items}
    for file in files:
        path = folder / "datasets" / items[file].path
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tiny_weights(folder).rename(path)


def run_commands(lines, folder):
    """Run a block's commands of Duet, all in one process."""
    commands, served = [], []
    for line in lines:
        program, name, *flags = shlex.split(line, comments=True)
        if program in INSTALLS:
            continue
        assert program == "duet", line
        if name == "fetch":
            fetch(flags[0], flags[1:], folder)
        elif name == "serve":  # it would not end
            served.append(parse_serve_flags(flags).weights)
        else:
            commands.append([name, *flags, *SMALL.get(name, [])])
    if commands:
        run(["-c", SEVERAL, json.dumps(commands)], folder)
    for weights in served:
        assert weights and all((folder / path).is_file() for path in weights)


@pytest.mark.parametrize("page", PAGES)
def test_newcomer_page_commands_run_in_order(page, tmp_path):
    for name in CHECKOUT:
        (tmp_path / name).symlink_to(PROJECT / name)
    write_small_dataset(tmp_path).parent.rename(tmp_path / "mydata")
    ran = 0
    for language, text in FENCE.findall((PROJECT / page).read_text(encoding="utf-8")):
        if language == "python":
            run(["-c", text], tmp_path)
        else:
            lines = re.sub(r"\\\n *", "", text).splitlines()
            commands = [line for line in lines if not line.startswith("#")]
            run_commands(commands, tmp_path)
            ran += len(commands)
    assert ran > 2
    assert list(tmp_path.glob("runs/detect/exp/*.jpg"))
