"""Select the framework of this process: `use` chooses it once and imports it.

Precedence: `--backend`, the environment variable YOLO_BACKEND, the launcher that started the
process, then the first installed of PyTorch, OneFlow and ONNX.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from duet.backend.cores import choose_threads
from duet.backend.processes import LAUNCHERS, backend_of_launcher
from duet.backend.system import age_objects, collector_paused

ENVIRONMENT_VARIABLE = "YOLO_BACKEND"
IS_CHECKOUT = (Path(__file__).resolve().parents[1] / "Makefile").exists()  # else a pip install


class BackendError(ValueError):
    """The backend cannot be used, or none can; the message names the next step."""


class Framework(NamedTuple):
    """Facts about a framework, needed before it is imported."""

    package: str
    torchscript: bool = False  # same as `device.supports("torchscript")`
    trains: bool = True  # False: inference only, implements just `contract/inference.py`
    further_packages: tuple[str, ...] = ()
    on_gpus: bool = True  # False: CPU only
    install: str = ""  # install command; "" if it needs a separate environment
    required_version: str | None = None  # None: any
    startup_noise: tuple[str, ...] = ()  # stderr lines containing one of these are hidden


FRAMEWORKS: dict[str, Framework] = {
    "torch": Framework(package="torch", torchscript=True),
    "oneflow": Framework(
        package="oneflow",
        required_version="0.9.0",
        startup_noise=("libibverbs not available", "CUDA driver version is insufficient"),
    ),
    "onnx": Framework(
        package="onnx",
        trains=False,
        on_gpus=False,
        further_packages=("onnxruntime",),
        install="pip install onnx onnxruntime",
    ),
}

WITHOUT_NOISE = """import sys
for line in sys.stdin.buffer:
    if not any(noise.encode() in line for noise in sys.argv[1:]):
        sys.stderr.buffer.write(line)
        sys.stderr.flush()
"""

_bound: str | None = None


class Namespace:
    """One module of the active backend; the first look-up copies all its functions here.

    Compilers cannot trace `__getattr__`: a later look-up would break a compiled model's graph.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # introspection tools look up private names
            raise AttributeError(name)
        asked = f"{self._module}.{name}"
        if _bound is None:
            raise BackendError(
                f"{asked} was used before a backend was selected: call backend.use(name) first, "
                "as train.py does"
            )
        found = _public_names(f"duet.backend.{_bound}.{self._module}")
        self.__dict__.update(found)
        if name in found:
            return found[name]
        if FRAMEWORKS[_bound].trains:
            raise AttributeError(f"backend {_bound!r} has no {asked}")
        raise BackendError(
            f"backend {_bound!r} is inference-only and has no {asked}; {_training_backends()}"
        )


def _training_backends() -> str:
    names = [name for name, framework in FRAMEWORKS.items() if framework.trains]
    return f"choose one that supports training: {', '.join(names)}"


def _public_names(module: str) -> dict[str, object]:
    """Return the public names that a module defines or imports; {} if there is no such module."""
    if importlib.util.find_spec(module) is None:
        return {}
    return {k: v for k, v in vars(importlib.import_module(module)).items() if k[0] != "_"}


def use(name: str | None = None) -> str:
    """Bind this process to a backend and import its framework.

    Args:
        name: key of `FRAMEWORKS`; None for the active backend or, before that, by precedence.

    Returns:
        The name of the active backend.

    Raises:
        BackendError: unknown, not installed, not importable, incompatible with the launcher, or
            another backend is already active.
    """
    global _bound
    if name is not None:
        _check_known(name, "--backend")
    if _bound is None:
        chosen = choose(name)
        choose_threads()
        _import_backend(chosen)
        _bound = chosen
    elif name is not None and name != _bound:
        raise BackendError(
            f"cannot switch to backend {name!r}: this process already uses {_bound!r}; start "
            "another process for it"
        )
    return _bound


def choose(name: str | None, trains: bool = False) -> str:
    """Return the backend that `use(name)` would select, without importing it. Errors as in `use`.

    trains: reject an inference-only backend, and do not select one by default.
    """
    asked = name or os.environ.get(ENVIRONMENT_VARIABLE) or None
    launched = backend_of_launcher()
    if asked is not None:
        _check_known(asked, "--backend" if name else ENVIRONMENT_VARIABLE)
        _check_launcher(asked, launched)
    wanted = asked or launched
    if wanted is None:
        return _first_installed(trains)
    if trains and not FRAMEWORKS[wanted].trains:
        raise BackendError(f"backend {wanted!r} is inference-only; {_training_backends()}")
    problem = _installation_problem(wanted)
    if problem is not None:
        raise BackendError(problem)
    return wanted


def _first_installed(trains: bool) -> str:
    suitable = [name for name, framework in FRAMEWORKS.items() if framework.trains or not trains]
    problems = {name: _installation_problem(name) for name in suitable}
    for name, problem in problems.items():
        if problem is None:
            return name
    raise BackendError("; ".join(problem for problem in problems.values() if problem))


def _check_known(name: str, source: str) -> None:
    if name not in FRAMEWORKS:
        raise BackendError(
            f"unknown backend {name!r} in {source}; accepted: {', '.join(FRAMEWORKS)}"
        )


def _check_launcher(name: str, launched: str | None) -> None:
    if launched is not None and name != launched:
        own = f"with `{LAUNCHERS[name].command}`" if name in LAUNCHERS else "without a launcher"
        raise BackendError(
            f"backend {name!r} cannot run under `{LAUNCHERS[launched].command}`; start it "
            f"{own}, or choose backend {launched!r}"
        )


def _installation_problem(name: str) -> str | None:
    """Return why a backend cannot be used and how to fix it; None if it is installed."""
    framework = FRAMEWORKS[name]
    remedy = f"run `{install_command(name)}`"
    if not framework.install and IS_CHECKOUT:
        remedy += f" and use the Python in .venv/{name}"
    if not all(map(_is_installed, (framework.package, *framework.further_packages))):
        return f"backend {name!r} is not installed for {sys.executable}; {remedy}"
    if framework.required_version is None:
        return None
    found = importlib.metadata.version(framework.package)
    if found.partition("+")[0] != framework.required_version:
        return (
            f"backend {name!r} needs {framework.package} {framework.required_version}, "
            f"but {sys.executable} has {found}; {remedy}"
        )
    return None


def install_command(name: str) -> str:
    extra = f"make setup BACKEND={name}" if IS_CHECKOUT else f"pip install 'duet-detect[{name}]'"
    return FRAMEWORKS[name].install or extra


def _is_installed(package: str) -> bool:
    specification = importlib.util.find_spec(package)
    # A folder of the same name is found too, but has no origin.
    return specification is not None and specification.origin is not None


def _import_backend(name: str) -> None:
    try:
        with _stderr_without(FRAMEWORKS[name].startup_noise), collector_paused():
            importlib.import_module(f"duet.backend.{name}")
            age_objects()
    except Exception as error:
        raise BackendError(
            f"backend {name!r} is installed but cannot be imported: {error}\n"
            f"run `{install_command(name)}` to reinstall it"
        ) from error


@contextmanager
def _stderr_without(noise: Sequence[str]) -> Iterator[None]:
    """Hide lines with one of these texts that this process and its C libraries write to stderr.

    Another process writes the other lines, at once: they may be the last before an abort.
    """
    if not noise or sys.stderr is None:  # None: as in a Windows program without a console
        yield
        return
    with subprocess.Popen(
        [sys.executable, "-S", "-c", WITHOUT_NOISE, *noise],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for this process
    ) as other:
        assert other.stdin is not None
        sys.stderr.flush()
        original = os.dup(2)
        os.dup2(other.stdin.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(original, 2)
            os.close(original)
