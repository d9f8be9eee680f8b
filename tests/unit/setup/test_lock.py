"""The locks are written from what uv resolved; no index is asked here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from duet.utils.errors import UserError
from duet.utils.setup import lock

# Plays uv: writes down its words and constraints, and prints pins by the last extra or the group.
UV = """#!/bin/sh
words="$*"
{{ echo "$words"; cat; echo; }} >> "{journal}"
pin() {{ printf '%s \\\\\n    --hash=sha256:aa\n' "$1"; }}
case "$words" in
  *:docs*) pin mkdocs==1.6; exit;;
  *"--extra oneflow"*) pin oneflow==0.9.0;;
  *) pin torch==2.13.0; pin nvidia-nccl==2.29; pin "triton==3.7 ; sys_platform == 'linux'";;
esac
pin numpy==2.4.6
case "$words" in *"--extra serve"*) pin starlette==1.10.0;; esac
case "$words" in *"--extra all"*|*"--extra dev"*) pin av==18.1.0; pin starlette==1.10.0;; esac
case "$words" in *"--extra dev"*) pin pytest==9.2.0;; esac
"""


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "uv").write_text(UV.format(journal=tmp_path / "journal"))
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(lock, "REQUIREMENTS", tmp_path)
    return tmp_path / "journal"


def test_what_each_level_adds_and_the_cuda_build_have_locks_of_their_own(journal):
    lock.main()
    texts = {path.stem: path.read_text().splitlines()[1:] for path in journal.parent.glob("*.txt")}
    assert {line for lines in texts.values() for line in lines[1::2]} == {"    --hash=sha256:aa"}
    pins = {
        name: [line.removesuffix(" \\") for line in lines[::2]] for name, lines in texts.items()
    }
    assert pins == {
        "torch": ["numpy==2.4.6", "starlette==1.10.0"],
        "torch-cuda": [
            "nvidia-nccl==2.29",
            "torch===2.13.0",
            "triton==3.7 ; sys_platform == 'linux'",
        ],
        "torch-extras": ["av==18.1.0"],
        "torch-dev": ["pytest==9.2.0"],
        "oneflow": ["numpy==2.4.6", "oneflow==0.9.0", "starlette==1.10.0"],
        "oneflow-extras": ["av==18.1.0"],
        "oneflow-dev": ["pytest==9.2.0"],
        "docs": ["mkdocs==1.6"],
    }


def test_all_levels_have_the_versions_of_the_largest_one_and_no_source_is_built(journal):
    lock.main()
    commands = [line for line in journal.read_text().splitlines() if line.startswith("pip ")]
    constraints = journal.read_text().count("pytest==9.2.0\n")
    assert len(commands) == 7 and constraints == 4  # of users and extras on both backends
    assert all("--only-binary :all: --generate-hashes" in command for command in commands)


def test_without_uv_no_lock_is_written_and_the_command_for_it_is_named(journal, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="uv 0.9 or newer is needed: pip install uv"):
        lock.main()
    assert list(journal.parent.glob("*.txt")) == []
