"""Making environments, with a stand-in for Python that records what it is asked to do."""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

from utils.errors import UserError
from utils.files.project import PROJECT
from utils.setup.environments import prepare_all

# Plays python, pip and the Python inside the new environment, which is a copy of itself.
FAKE_PYTHON = """#!/bin/sh
case "$1 $2 $#" in
  "-m venv 3") mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; echo venv >> "{journal}";;
  "-m pip "*) case "$3" in
      index) echo "Available versions: {versions}";;
      check) printf "{gaps}"; [ -z "{gaps}" ]; exit;;
      *) echo "pip $@" >> "{journal}"; echo "  Downloading torch-2.whl (190.5 MB)"
        echo "Using cached numpy-1.whl (18 MB)"; echo "collecting packages"; exit {pip_exit_code};;
    esac;;
  "-c import torch 2") ;;
  "-c import oneflow 2") echo "no libcudnn.so.8"; exit {import_exit_code};;
  "-c "*) echo {version}; echo "$0";;
esac
"""


class Checkout:
    """A project folder with lock files, and a machine with two Pythons."""

    def __init__(self, folder: Path, name: str = "project") -> None:
        self.root = folder / name
        self.bin = folder / "bin"
        self.journal = folder / "journal"
        self.environ = {"PATH": str(self.bin), "HOME": str(folder)}
        (self.root / "requirements").mkdir(parents=True)
        self.bin.mkdir(exist_ok=True)
        self.write_lock("torch", "tqdm==4.70.1\n")
        self.write_lock("torch-cpu", "torch==2.13.0+cpu \\\n")
        self.write_lock("torch-cuda", "torch===2.13.0 \\\n")
        self.write_lock("oneflow", "oneflow==0.9.0\n")
        self.write_python("python3", "3.11.7")
        self.write_python("python3.10", "3.10.13")

    def write_lock(self, backend: str, text: str) -> None:
        (self.root / "requirements" / f"{backend}.txt").write_text(text)

    def write_python(
        self,
        name: str,
        version: str,
        pip_exit_code: int = 0,
        import_exit_code: int = 0,
        versions: str = "2.13.0+cpu, 2.13.0",
        gaps: str = "",
    ) -> None:
        script = FAKE_PYTHON.format(
            versions=versions,
            gaps=gaps,
            version=version,
            journal=self.journal,
            pip_exit_code=pip_exit_code,
            import_exit_code=import_exit_code,
        )
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o755)

    def prepare(self, *names: str, **environ: str) -> dict[str, Path]:
        return prepare_all(names, self.root, {**self.environ, **environ})

    def count_of_installs(self) -> int:
        return len(self.installs())

    def installs(self) -> list[str]:
        """What pip was asked to install, a line each."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [line for line in lines if line.startswith("pip ")]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    monkeypatch.setattr(sysconfig, "get_platform", lambda: "linux-x86_64")
    return Checkout(tmp_path)


def test_both_environments_are_made_and_announced(checkout, capsys):
    ready = checkout.prepare()
    assert ready == {
        "torch": checkout.root / ".venv/torch/bin/python",
        "oneflow": checkout.root / ".venv/oneflow/bin/python",
    }
    assert all(python.exists() for python in ready.values())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("torch: installing") and "Python 3.11.7" in lines[0]
    assert lines[1] == "torch: the CPU build"
    assert lines[3].startswith("oneflow: installing") and "Python 3.10.13" in lines[3]
    ready_line = r"ready after 0:0\d; packages: 2, downloaded: 190 MB"
    assert re.fullmatch(f"torch: {ready_line}", lines[2])
    assert re.fullmatch(f"oneflow: {ready_line}", lines[4])


def test_second_run_installs_nothing_and_prints_nothing(checkout, capsys):
    checkout.prepare()
    capsys.readouterr()
    checkout.prepare()
    assert checkout.count_of_installs() == 2  # one for each backend, in the first run
    assert capsys.readouterr().out == ""


def test_second_run_needs_no_python_but_the_environments(checkout):
    checkout.prepare("oneflow")
    (checkout.bin / "python3.10").unlink()
    checkout.prepare("oneflow")
    assert checkout.count_of_installs() == 1


@pytest.mark.parametrize("name", ["torch", "torch-cpu", "torch-cuda"])
def test_changed_lock_installs_again(checkout, name):
    checkout.prepare("torch")
    checkout.write_lock(name, "torch==2.13.1+cpu \\\n")
    checkout.prepare("torch")
    assert checkout.count_of_installs() == 2


def test_only_packages_with_a_hash_are_installed_and_none_is_built(checkout):
    checkout.prepare()
    for line in checkout.installs():
        assert "--require-hashes --no-deps --only-binary :all:" in line


@pytest.mark.parametrize(
    ("versions", "asked", "installed"),
    [
        ("2.14.0, 2.13.0+cpu, 2.13.0", "", "cpu"),
        ("2.14.0, 2.13.0", "", "cuda"),
        ("2.14.0+cpu, 2.13.0+cpu.x, 12.13.0+cpu", "", "cuda"),
        ("2.13.0+cpu, 2.13.0", "cuda", "cuda"),
        ("2.13.0", "cpu", "cpu"),
    ],
)
def test_the_build_of_torch_is_that_of_the_index_unless_it_is_named(
    checkout, versions, asked, installed, capsys, monkeypatch
):
    monkeypatch.setattr("utils.setup.environments.newest_cuda", lambda: None)
    checkout.write_python("python3", "3.11.7", versions=versions)
    checkout.prepare("torch", TORCH=asked)
    (line,) = checkout.installs()
    assert line.count(" -r ") == 2 and f"torch-{installed}.txt" in line
    assert ("no NVIDIA driver" in capsys.readouterr().out) is (installed == "cuda")


def test_an_environment_with_the_build_that_is_named_stays(checkout):
    checkout.prepare("torch")
    checkout.prepare("torch", TORCH="cpu")
    assert checkout.count_of_installs() == 1
    checkout.prepare("torch", TORCH="cuda")
    assert checkout.count_of_installs() == 2
    checkout.prepare("torch")  # without a name any build will do
    assert checkout.count_of_installs() == 2


def test_a_build_that_is_none_is_refused_for_torch_alone(checkout):
    with pytest.raises(UserError, match="TORCH=rocm; cpu or cuda is accepted"):
        checkout.prepare("torch", TORCH="rocm")
    checkout.prepare("oneflow", TORCH="rocm")


def test_a_cuda_build_is_refused_where_there_is_none(checkout, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_platform", lambda: "macosx-14.0-arm64")
    with pytest.raises(UserError, match="TORCH=cuda; torch has a CUDA build for Linux only"):
        checkout.prepare("torch", TORCH="cuda")


@pytest.mark.parametrize(
    ("driver", "told"),
    [((12, 8), "shows a driver for CUDA 12.8"), ((13, 0), "which this machine's driver serves"),
     ((13, 2), "which this machine's driver serves"), (None, "shows no NVIDIA driver")],
)  # fmt: skip
def test_the_driver_is_told_beside_a_cuda_build(checkout, capsys, monkeypatch, driver, told):
    monkeypatch.setattr("utils.setup.environments.newest_cuda", lambda: driver)
    checkout.prepare("torch", TORCH="cuda")
    assert told in capsys.readouterr().out


def test_comment_in_a_lock_installs_nothing(checkout):
    checkout.prepare("torch")
    checkout.write_lock("torch", "# the framework\ntqdm==4.70.1  # pinned\n\n")
    checkout.prepare("torch")
    assert checkout.count_of_installs() == 1


def test_interrupted_installation_is_done_afresh(checkout):
    leftover = checkout.root / ".venv" / "torch" / "leftover"
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    checkout.prepare("torch")
    assert checkout.count_of_installs() == 1
    assert not leftover.exists()


def test_environment_whose_python_was_updated_is_made_again(checkout):
    python = checkout.prepare("torch")["torch"]
    python.write_text(python.read_text().replace("3.11.7", "3.11.8"))
    checkout.prepare("torch")
    assert checkout.count_of_installs() == 2


def test_environment_whose_python_is_gone_is_made_again(checkout):
    checkout.prepare("torch")["torch"].unlink()
    assert checkout.prepare("torch")["torch"].exists()


def test_failed_installation_shows_the_end_of_its_log_and_is_not_taken_for_ready(checkout):
    checkout.write_python("python3", "3.11.7", pip_exit_code=1)
    for _ in range(2):
        with pytest.raises(UserError, match="exit code 1") as error:
            checkout.prepare("torch")
        assert "collecting packages" in str(error.value)
        assert str(checkout.root / ".venv" / "torch.log") in str(error.value)
    assert checkout.count_of_installs() == 2


def test_package_that_does_not_import_is_refused_with_its_error(checkout):
    checkout.write_python("python3.10", "3.10.13", import_exit_code=1)
    for _ in range(2):
        with pytest.raises(UserError, match=r"-c import oneflow failed .*\n(.*\n)*no libcudnn"):
            checkout.prepare("oneflow")
    assert checkout.count_of_installs() == 2


KNOWN_GAPS = (
    "trackers 2.6.1 requires opencv-python, which is not installed.\\n"
    "trackers 2.6.1 has requirement numpy>=2.0.2, but you have numpy 1.26.4.\\n"
)


def test_packages_that_do_not_fit_together_are_refused(checkout):
    gap = "av 17.1.0 requires numpy, which is not installed."
    checkout.write_python("python3.10", "3.10.13", gaps=f"{KNOWN_GAPS}{gap}\\n")
    for _ in range(2):
        with pytest.raises(UserError, match="do not fit together") as error:
            checkout.prepare("oneflow")
        assert str(error.value).splitlines()[1:] == [gap]
    assert checkout.count_of_installs() == 2


def test_what_optional_packages_lack_on_purpose_is_no_error(checkout):
    checkout.write_python("python3.10", "3.10.13", gaps=KNOWN_GAPS)
    assert checkout.prepare("oneflow")["oneflow"].exists()


def test_without_python_3_10_oneflow_is_left_out_and_torch_goes_on(checkout, capsys):
    (checkout.bin / "python3.10").unlink()
    assert list(checkout.prepare()) == ["torch"]
    output = capsys.readouterr().out
    assert "oneflow: left out: no usable Python 3.10" in output
    assert "pyenv install 3.10" in output


@pytest.mark.parametrize(
    ("names", "required"), [((), "torch oneflow"), (("oneflow",), ""), (("oneflow",), "torch")]
)
def test_without_python_3_10_a_required_oneflow_is_an_error(checkout, names, required):
    (checkout.bin / "python3.10").unlink()
    with pytest.raises(UserError, match=r"oneflow: no usable Python 3\.10"):
        checkout.prepare(*names, REQUIRE_BACKENDS=required)


def test_on_another_platform_oneflow_is_left_out(checkout, capsys, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_platform", lambda: "linux-aarch64")
    assert list(checkout.prepare()) == ["torch"]
    assert "packages for linux-x86_64 only, this is linux-aarch64" in capsys.readouterr().out


def test_without_any_python_for_torch_it_is_an_error(checkout):
    (checkout.bin / "python3").unlink()
    (checkout.bin / "python3.10").unlink()
    with pytest.raises(UserError, match="torch: no usable Python"):
        checkout.prepare()


@pytest.mark.parametrize(("names", "required"), [(("jax",), ""), ((), "torch jax")])
def test_unknown_environment_is_an_error_that_names_the_known_ones(checkout, names, required):
    with pytest.raises(
        UserError, match="unknown environment 'jax'; known are torch, oneflow, docs"
    ):
        checkout.prepare(*names, REQUIRE_BACKENDS=required)


def test_cached_environment_serves_a_second_checkout(checkout, tmp_path):
    cache = str(tmp_path / "cache")
    checkout.prepare("torch", DUET_ENVIRONMENT_CACHE=cache)
    other = Checkout(tmp_path, "other")
    python = other.prepare("torch", DUET_ENVIRONMENT_CACHE=cache)["torch"]
    assert checkout.count_of_installs() == 1
    assert python.resolve().is_relative_to(tmp_path / "cache")


def test_command_waits_for_another_that_installs_the_same(checkout, capsys):
    lock = checkout.root / ".venv" / "torch.lock"
    lock.parent.mkdir()
    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        waiting = threading.Thread(target=checkout.prepare, args=["torch"])
        waiting.start()
        waiting.join(timeout=0.5)
        assert waiting.is_alive() and checkout.count_of_installs() == 0
    waiting.join()
    assert checkout.count_of_installs() == 1
    assert capsys.readouterr().out.startswith("torch: waiting for another command")


def test_half_made_cached_environment_is_not_used(checkout, tmp_path):
    cache = str(tmp_path / "cache")
    python = checkout.prepare("torch", DUET_ENVIRONMENT_CACHE=cache)["torch"]
    (python.resolve().parents[1] / "duet-environment.json").unlink()
    checkout.prepare("torch", DUET_ENVIRONMENT_CACHE=cache)
    assert checkout.count_of_installs() == 2


def test_changed_lock_leaves_the_cached_environment_to_other_checkouts(checkout, tmp_path):
    python = checkout.prepare("torch", DUET_ENVIRONMENT_CACHE=str(tmp_path / "cache"))["torch"]
    cached_python = python.resolve()
    checkout.write_lock("torch", "torch==2.13.0\nnumpy==2.2.6\n")
    checkout.prepare("torch")
    assert cached_python.exists()
    assert python.resolve().is_relative_to(checkout.root)


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_command_says_what_it_takes(flag):
    command = [sys.executable, "-m", "utils.setup.environments", flag]
    result = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "[NAME ...]" in result.stdout and "one of torch, oneflow, docs" in result.stdout


def test_command_ends_with_one_message_and_exit_code_2():
    command = [sys.executable, "-m", "utils.setup.environments", "jax"]
    result = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "error: unknown environment 'jax'; known are torch, oneflow, docs\n"
