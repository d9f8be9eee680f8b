"""Write the locks of requirements/: every package with its version and the hashes of its wheels.

    python3.11 -m duet.utils.setup.lock

For maintainers, after a change of a .in file. It needs uv 0.9 or newer on PATH, which asks the
index that it is configured with and downloads no package. The .in files pin all versions, so that
the result is the same on any day. Hashes are those of the wheels for Linux and macOS on the Pythons
that are supported; no source distribution has one, so none is built.
"""

from __future__ import annotations

from duet.utils.processes.interrupt import end_at_interrupt

if __name__ == "__main__":
    end_at_interrupt()  # while the others are imported

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomllib

from duet.utils.errors import UserError
from duet.utils.project import PROJECT
from duet.utils.setup.environments import end_with_message, read_lock

REQUIREMENTS = PROJECT / "requirements"
# What uv resolves for: any platform on this Python and newer, or the one that OneFlow has.
TARGETS = {
    "torch": ("--universal", "--python-version", "3.10"),
    "oneflow": ("--python-version", "3.10", "--python-platform", "x86_64-manylinux_2_28"),
    "docs": ("--universal", "--python-version", "3.11"),
}
PYTHONS = ("py3", "py311", "py312", "py313", "cp310", "cp311", "cp312", "cp313")
PLATFORM = re.compile(r"any|manylinux\w*_(x86_64|aarch64)|macosx\w+")
CUDA_PACKAGE = re.compile(r"(nvidia|cuda)-")
ALWAYS = re.compile(r"python_full_version >= '3\.10'( and )?")
Package = Mapping[str, Any]  # of a pylock.toml


def main() -> None:
    """Write all locks, or none if uv fails."""
    torch, oneflow, docs = (resolve(name) for name in TARGETS)
    cuda = [package for package in torch if CUDA_PACKAGE.match(package["name"])]
    framework = next(package for package in torch if package["name"] == "torch")
    others = [package for package in torch if package not in cuda and package is not framework]
    version = framework["version"]
    cpu = (REQUIREMENTS / "torch-cpu.txt").read_text()
    if f"torch=={version}+cpu " not in cpu:
        raise UserError(f"requirements/torch-cpu.txt: write version {version} and its hashes there")
    write("oneflow", map(entry, oneflow))
    write("docs", map(entry, docs))
    write("torch", map(entry, others))
    # "==" would take the version with "+cpu", where pip finds it.
    write("torch-cuda", [entry(framework, f"torch==={version}"), *map(entry, cuda)])


def resolve(name: str) -> list[Package]:
    """Return the packages of a .in file, with all that they need, as uv finds them."""
    with tempfile.TemporaryDirectory() as folder:
        output, others = Path(folder, "pylock.toml"), Path(folder, "overrides.txt")
        # What replaces the requirements of packages; `optional.in` says why.
        pins = read_lock(REQUIREMENTS / f"{name}.in")
        numpy = [pin for pin in pins if pin.startswith("numpy==")]
        others.write_text("\n".join(["opencv-python; python_version < '3'", *numpy]))
        command = ["uv", "pip", "compile", "--no-config", "--quiet", "--only-binary", ":all:",
            "--format", "pylock.toml", "--output-file", str(output), *TARGETS[name],
            "--override", str(others), str(REQUIREMENTS / f"{name}.in")]  # fmt: skip
        try:
            subprocess.run(command, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise UserError(f"{error}; uv 0.9 or newer is needed: pip install uv") from error
        packages = tomllib.loads(output.read_text())["packages"]
    return [package for package in packages if "win32" not in package.get("marker", "")]


def entry(package: Package, pin: str = "") -> str:
    """Return a package's requirement with its marker and the hashes of the wheels that fit."""
    marker = ALWAYS.sub("", package.get("marker", ""))
    pin = pin or f"{package['name']}=={package['version']}"
    names = [(wheel.get("name") or wheel["url"].rpartition("/")[2], wheel["hashes"]["sha256"])
             for wheel in package["wheels"]]  # fmt: skip
    hashes = sorted({f"--hash=sha256:{digest}" for name, digest in names if fits(name)})
    if not hashes:
        raise UserError(f"{pin} has no wheel that fits")
    return " \\\n    ".join([f"{pin} ; {marker}" if marker else pin, *hashes])


def fits(wheel: str) -> bool:
    """Return whether a wheel's name says that a supported Python on Linux or macOS takes it."""
    python, abi, platform = wheel.removesuffix(".whl").split("-")[-3:]
    if abi == "abi3":  # of this Python and all after it
        right_python = int(python.removeprefix("cp3")) <= int(PYTHONS[-1].removeprefix("cp3"))
    else:
        right_python = abi in ("none", python) and bool({*python.split(".")} & {*PYTHONS})
    return right_python and any(map(PLATFORM.fullmatch, platform.split(".")))


def write(name: str, entries: Iterable[str]) -> None:
    """Write a lock; the order of its entries is that of their text."""
    header = f"# Written by utils/setup/lock.py from {name.partition('-')[0]}.in; not by hand."
    (REQUIREMENTS / f"{name}.txt").write_text("\n".join([header, *sorted(entries)]) + "\n")


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)
    end_with_message(main)
