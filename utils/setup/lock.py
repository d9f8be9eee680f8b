"""Write the locks of requirements/ from pyproject.toml, with the newest versions that it allows.

    python3 -m duet.utils.setup.lock

For maintainers: `make update`. It needs uv 0.9 or newer on PATH, which asks the index that it is
configured with and downloads no package. NAME.txt is for a backend's users, NAME-extras.txt and
NAME-dev.txt are what WITH adds. torch-cpu.txt, of another index, is written by hand.
"""

from __future__ import annotations

from duet.utils.processes.start import end_at_interrupt

if __name__ == "__main__":
    end_at_interrupt()  # while the others are imported

import re
import subprocess
import sys
from collections.abc import Iterable

from duet.utils.errors import UserError
from duet.utils.project import PROJECT
from duet.utils.setup.environments import end_with_message

REQUIREMENTS = PROJECT / "requirements"
# What uv resolves for: any platform on this Python and newer, or the one that OneFlow has.
ANY_PYTHON = ("--universal", "--python-version", "3.10")
ONEFLOW = ("--python-version", "3.10", "--python-platform", "x86_64-manylinux_2_28")
CUDA_BUILD = re.compile(r"(torch|triton|(nvidia|cuda)-\S+)==")
ENTRY = re.compile(r"^\S.*(?:\n +.*)*", re.MULTILINE)  # a pin, and its hashes in lines below


def main() -> None:
    """Write all locks, or none if uv fails."""
    locks = resolve_levels("torch", ANY_PYTHON) | resolve_levels("oneflow", ONEFLOW)
    locks["docs"] = resolve("--group", "pyproject.toml:docs", *ANY_PYTHON)
    cuda = {entry for entry in locks["torch"] if CUDA_BUILD.match(entry)}
    locks["torch"] -= cuda
    # "==" would take the version with "+cpu", where pip finds it.
    locks["torch-cuda"] = {re.sub("^torch==", "torch===", entry) for entry in cuda}
    header = "# Written by utils/setup/lock.py from pyproject.toml; not by hand."
    for name, entries in locks.items():
        (REQUIREMENTS / f"{name}.txt").write_text(
            "\n".join([header, *sorted(entries)]) + "\n", encoding="utf-8"
        )


def resolve_levels(name: str, target: Iterable[str]) -> dict[str, set[str]]:
    """Return the entries of a backend's locks; all have the versions that the largest one needs."""
    source = ("pyproject.toml", *target, "--constraint", "-", "--extra", name)
    dev = resolve(*source, "--extra", "dev")
    versions = "\n".join(entry.partition(" \\")[0] for entry in dev)
    users = resolve(*source, "--extra", "serve", constraints=versions)
    extras = resolve(*source, "--extra", "all", constraints=versions)
    return {name: users, f"{name}-extras": extras - users, f"{name}-dev": dev - extras - users}


def resolve(*source: str, constraints: str = "") -> set[str]:
    """Return the entries of a lock as uv finds them: versions, markers and hashes."""
    command = ["uv", "pip", "compile", *source, "--quiet", "--only-binary", ":all:",
        "--generate-hashes", "--no-header", "--no-annotate", "--no-python-downloads"]  # fmt: skip
    try:
        done = subprocess.run(
            command,
            cwd=PROJECT,
            input=constraints,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(f"{error}; uv 0.9 or newer is needed: pip install uv") from error
    return set(ENTRY.findall(done.stdout))


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)
    end_with_message(main)
