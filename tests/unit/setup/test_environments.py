"""Making environments and their locks, with stand-ins for Python and uv that record their calls."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from duet.utils.errors import UserError
from duet.utils.project import PROJECT
from duet.utils.setup import lock
from duet.utils.setup.environments import prepare_all

# Plays python, pip and the Python inside the new environment, which is a copy of itself.
FAKE_PYTHON = """#!/bin/sh
case "$1 $2 $#" in
  "-m venv 3") mkdir -p "$3/bin"; cp "$0" "$3/bin/python";;
  "-m pip "*) case "$3" in
      index) echo "Available versions: {versions}";;
      config) echo "{config}";;
      *) echo "pip $@" >> "{journal}"; exit {pip_code};;
    esac;;
  "-c "*ensurepip*) echo {version} "$0"; exit {probe_code};;
  "-c import "*) exit {import_code};;
esac
"""
FAKE_UV = '#!/bin/sh\necho "uv $@" >> "{journal}"\n'


class Checkout:
    """A project folder with lock files, and a machine with two Pythons."""

    def __init__(self, folder: Path, name: str = "project") -> None:
        self.root, self.bin, self.journal = folder / name, folder / "bin", folder / "journal"
        self.environ = {"PATH": str(self.bin), "HOME": str(folder)}
        (self.root / "requirements").mkdir(parents=True)
        self.bin.mkdir(exist_ok=True)
        for stem, text in {
            "torch": "tqdm==4.70.1",
            "torch-cpu": "torch==2.13.0+cpu \\",
            "torch-cuda": "torch===2.13.0 \\",
            "torch-extras": "av==18.1.0",
            "torch-dev": "pytest==9.2.0",
            "oneflow": "oneflow==0.9.0",
        }.items():
            self.write_lock(stem, text)
        self.write_python("python3", "3.11.7")
        self.write_python("python3.10", "3.10.13")

    def write_lock(self, name: str, text: str) -> None:
        (self.root / "requirements" / f"{name}.txt").write_text(text + "\n")

    def write_python(self, name: str, version: str, **options: object) -> None:
        parts = {"versions": "2.13.0+cpu, 2.13.0", "config": "", "journal": self.journal,
                 "pip_code": 0, "import_code": 0, "probe_code": 0, **options}  # fmt: skip
        self.write_script(name, FAKE_PYTHON.format(version=version, **parts))

    def write_script(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def prepare(self, *names: str, **environ: str) -> dict[str, Path]:
        return prepare_all(names, self.root, {**self.environ, **environ})

    def installs(self) -> list[str]:
        """What pip or uv was asked to install, a line each."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    monkeypatch.setattr(sysconfig, "get_platform", lambda: "linux-x86_64")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return Checkout(tmp_path)


def test_duet_command_runs_the_python_of_its_environment(checkout: Checkout) -> None:
    python = checkout.prepare("torch")["torch"]
    python.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    environ = {"PATH": f"{python.parent}:/usr/bin:/bin"}
    (python.parent / "duet").rename(python.parent / "kept")
    checkout.prepare("torch")  # one that an older checkout made gets it too
    words = ["duet", "train", "--name", "two words"]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "-m|duet|train|--name|two words|"


def test_environments_are_made_once_with_hashed_packages(checkout, capsys):
    venv = checkout.root / ".venv"
    ready = {name: venv / name / "bin/python" for name in ("torch", "oneflow")}
    assert checkout.prepare() == ready and all(python.exists() for python in ready.values())
    assert capsys.readouterr().out.splitlines() == [
        f"torch: installing into {venv / 'torch'}", "torch: the build for CPUs", "torch: ready",
        f"oneflow: installing into {venv / 'oneflow'}", "oneflow: ready",
    ]  # fmt: skip
    (checkout.bin / "python3.10").unlink()  # it is needed no more
    checkout.prepare()
    assert capsys.readouterr().out == ""
    assert len(checkout.installs()) == 2 and "extras" not in str(checkout.installs())
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
def test_package_index_decides_the_torch_build_by_default(
    checkout, versions, asked, installed, capsys
):
    checkout.write_python("python3", "3.11.7", versions=versions)
    checkout.prepare("torch", TORCH=asked)
    (line,) = checkout.installs()
    assert line.count(" -r ") == 2 and f"torch-{installed}.txt" in line
    assert ("2.7 GB to download" in capsys.readouterr().out) is (installed == "cuda")
    checkout.prepare("torch", TORCH=installed)
    assert len(checkout.installs()) == 1
    checkout.prepare("torch", TORCH="cpu" if installed == "cuda" else "cuda")
    assert len(checkout.installs()) == 2


@pytest.mark.parametrize(("level", "added"), [("extras", ["extras"]), ("dev", ["extras", "dev"])])
def test_extra_packages_are_added_once_to_the_environment(checkout, level, added):
    python = checkout.prepare("torch", TORCH="cuda")["torch"]
    (python.parent / "mine").touch()
    for _ in range(2):
        checkout.prepare("torch", WITH=level)
    checkout.prepare("torch")  # what a user needs is there
    _, line = checkout.installs()
    locks = [Path(word).stem for word in line.split() if word.endswith(".txt")]
    assert locks == ["torch", "torch-cuda", *(f"torch-{name}" for name in added)]
    assert (python.parent / "mine").exists()


def test_uv_installs_unless_pip_has_its_own_settings(checkout):
    checkout.write_script("uv", FAKE_UV.format(journal=checkout.journal))
    checkout.prepare("torch")
    checkout.write_python("python3.10", "3.10.13", config="global.index-url='https://a.org'")
    checkout.prepare("oneflow")
    by_uv, by_pip = checkout.installs()
    python = checkout.root / ".venv/torch/bin/python"
    assert by_uv.startswith(
        f"uv --project / pip install --python {python} --require-hashes --no-deps"
    )
    assert by_pip.startswith("pip -m pip install")


@pytest.mark.parametrize(
    ("change", "installs"),
    [
        (lambda checkout: checkout.write_lock("torch", "tqdm==4.70.1  # pinned\n\n"), 1),
        (lambda checkout: checkout.write_lock("torch", "tqdm==4.70.2"), 2),
        (lambda checkout: checkout.write_lock("torch-cpu", "torch==2.13.1+cpu \\"), 2),
        (lambda checkout: checkout.write_lock("torch-dev", "pytest==9.2.1"), 2),
        (lambda checkout: (checkout.root / ".venv/torch/bin/python").unlink(), 2),
        (lambda checkout: (checkout.root / ".venv/torch/duet-environment.json").unlink(), 2),
    ],
    ids=["comment", "lock", "build lock", "level lock", "no Python", "half-made"],
)
def test_incomplete_or_outdated_environment_is_remade(checkout, change, installs):
    checkout.prepare("torch")
    change(checkout)
    checkout.prepare("torch")
    assert len(checkout.installs()) == installs


@pytest.mark.parametrize(
    ("problem", "message"),
    [({"pip_code": 1}, "-m pip install .* failed with exit code 1"),
     ({"import_code": 1}, "-c import .* oneflow, cv2.* failed with exit code 1")],
)  # fmt: skip
def test_failed_environment_is_reported_and_not_ready(checkout, problem, message):
    checkout.write_python("python3.10", "3.10.13", **problem)
    for count in (1, 2):
        with pytest.raises(UserError, match=message):
            checkout.prepare("oneflow")
        assert len(checkout.installs()) == count


def test_python_is_found_behind_unusable_ones(checkout, tmp_path):
    checkout.write_script("python3", "#!/bin/sh\necho 'pyenv: not found' >&2; exit 127")
    checkout.write_python("python3.10", "3.10.13", probe_code=1)
    with pytest.raises(UserError) as error:
        checkout.prepare("oneflow")
    text = str(error.value)
    assert text.startswith("oneflow: no usable Python 3.10 on PATH, in pyenv or uv. Looked at:")
    assert f"{checkout.bin}/python3 is broken" in text
    assert f"{checkout.bin}/python3.10 lacks venv; on Debian: apt install python3.10-venv" in text
    assert "`pyenv install 3.10`, `uv python install 3.10`" in text
    for folder in (".pyenv/versions/3.10.2", ".local/share/uv/python/cpython-3.10.9-linux"):
        (tmp_path / folder / "bin").mkdir(parents=True)
        checkout.write_python(f"../{folder}/bin/python3", "3.10.9")
        assert list(checkout.prepare("oneflow")) == ["oneflow"]
        (checkout.root / ".venv/oneflow/bin/python").unlink()
        (tmp_path / folder / "bin/python3").unlink()


@pytest.mark.parametrize(("names", "required"), [((), "torch oneflow"), (("oneflow",), "")])
def test_oneflow_is_left_out_if_unavailable_unless_required(
    checkout, capsys, monkeypatch, names, required
):
    monkeypatch.setattr(sysconfig, "get_platform", lambda: "linux-aarch64")
    assert list(checkout.prepare()) == ["torch"]
    line = "oneflow: left out: it has packages for linux-x86_64 only, this is linux-aarch64"
    assert line in capsys.readouterr().out
    with pytest.raises(UserError, match="oneflow: it has packages for linux-x86_64 only"):
        checkout.prepare(*names, REQUIRE_BACKENDS=required)


def test_cached_environment_serves_checkouts_with_its_lock(checkout, tmp_path):
    cache = str(tmp_path / "cache")
    python = checkout.prepare("torch", DUET_ENVIRONMENT_CACHE=cache)["torch"]
    other = Checkout(tmp_path, "other")
    found = other.prepare("torch", DUET_ENVIRONMENT_CACHE=cache)["torch"].resolve()
    assert len(checkout.installs()) == 1 and found.is_relative_to(cache)
    checkout.write_lock("torch", "tqdm==4.70.2")
    checkout.prepare("torch")
    assert found.exists() and python.resolve().is_relative_to(checkout.root)


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        (["jax"], {}, "unknown environment 'jax'; known are torch, oneflow, docs"),
        ([], {"REQUIRE_BACKENDS": "torch jax"}, "unknown environment 'jax'"),
        (["torch"], {"TORCH": "rocm"}, "TORCH=rocm; cpu or cuda is accepted"),
        (["torch"], {"WITH": "onnx"}, "WITH=onnx; extras or dev is accepted"),
    ],
)
def test_mistake_is_one_message_and_exit_code_2(arguments, environ, message):
    command = [sys.executable, "-m", "duet.utils.setup.environments", *arguments]
    done = subprocess.run(
        command, cwd=PROJECT, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message}") and len(done.stderr.splitlines()) == 1


def test_missing_uv_writes_no_lock_and_names_its_command(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "REQUIREMENTS", tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="uv 0.9 or newer is needed: pip install uv"):
        lock.main()
    assert list(tmp_path.iterdir()) == []
