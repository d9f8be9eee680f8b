"""Which framework this process uses: chosen once, by `use`, which imports it.

The order of choice: the name given (`--backend`), the environment variable YOLO_BACKEND, the
launcher that started the process, what is installed: PyTorch, else OneFlow, else ONNX.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from duet.backend.cores import choose_threads
from duet.backend.launchers import LAUNCHERS, backend_of_launcher

ENVIRONMENT_VARIABLE = "YOLO_BACKEND"
IS_CHECKOUT = (Path(__file__).resolve().parents[1] / "Makefile").exists()  # else it is installed


class BackendError(ValueError):
    """No backend can be used, or not this one; the message names the next step."""


class Framework(NamedTuple):
    """What must be known of a framework before it is imported."""

    package: str
    torchscript: bool = False  # as its `device.supports` says
    trains: bool = True  # False: for inference only, complete with `contract/inference.py`
    further_packages: tuple[str, ...] = ()
    on_gpus: bool = True  # False: computes on the CPU alone
    install: str = ""  # the command for it; "": an environment of its own
    required_version: str | None = None  # None: any
    startup_noise: tuple[str, ...] = ()  # parts of lines on stderr that are not shown


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

_bound: str | None = None


class Namespace:
    """One module of the backend in use; the first look-up keeps all of its functions here.

    A compiler cannot trace a look-up: a later one would split a compiled model.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # tools ask any object for private names
            raise AttributeError(name)
        asked = f"{self._module}.{name}"
        if _bound is None:
            raise BackendError(
                f"{asked} was looked up before a backend was chosen: call backend.use(name) "
                "first, as train.py does"
            )
        found = _public_names(f"duet.backend.{_bound}.{self._module}")
        self.__dict__.update(found)
        if name in found:
            return found[name]
        if FRAMEWORKS[_bound].trains:
            raise AttributeError(f"backend {_bound!r} has no {asked}")
        raise BackendError(
            f"backend {_bound!r} is for inference only and has no {asked}; {_those_that_train()}"
        )


def _those_that_train() -> str:
    names = [name for name, framework in FRAMEWORKS.items() if framework.trains]
    return f"choose one that trains: {', '.join(names)}"


def _public_names(module: str) -> dict[str, Any]:
    """Return the public names that a module defines or imports; {} if there is no such module."""
    if importlib.util.find_spec(module) is None:
        return {}
    return {k: v for k, v in vars(importlib.import_module(module)).items() if k[0] != "_"}


def use(name: str | None = None) -> str:
    """Bind this process to a backend and import its framework.

    Args:
        name: of `FRAMEWORKS`; None for the one in use, else by the order of choice above.

    Returns:
        The name of the backend in use.

    Raises:
        BackendError: unknown, not installed, not importable, unfit for the launcher, or another
            one is already in use.
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
            f"backend {name!r} was asked for, but this process already uses {_bound!r}; "
            "a process has one backend: start another process for the other"
        )
    return _bound


def choose(name: str | None, trains: bool = False) -> str:
    """Return the backend that `use(name)` would bind; import nothing. Errors as in `use`.

    trains: one for inference only is refused, and not chosen without being asked for.
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
        raise BackendError(f"backend {wanted!r} is for inference only; {_those_that_train()}")
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
    """Return why a backend cannot be used, with the remedy; None if it is installed."""
    framework = FRAMEWORKS[name]
    remedy = f"run `{_install_command(name)}`"
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


def _install_command(name: str) -> str:
    extra = f"make setup BACKEND={name}" if IS_CHECKOUT else f"pip install 'duet-detect[{name}]'"
    return FRAMEWORKS[name].install or extra


def _is_installed(package: str) -> bool:
    specification = importlib.util.find_spec(package)
    # A folder that only has the name is found too, without an origin.
    return specification is not None and specification.origin is not None


def _import_backend(name: str) -> None:
    framework = FRAMEWORKS[name]
    captured: list[str] = []
    try:
        with _interrupted_later(), _stderr_captured(captured):
            importlib.import_module(f"duet.backend.{name}")
    except Exception as error:
        raise BackendError(
            f"backend {name!r} is installed but cannot be imported: {error}\n"
            + "".join(captured)
            + f"run `{_install_command(name)}` to install it again"
        ) from error
    for line in captured:
        if not any(noise in line for noise in framework.startup_noise):
            sys.stderr.write(line)


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Have Ctrl-C wait for the end of the block; a second one does not.

    A framework that is interrupted while it is imported prints errors of its own.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came = []

    def note(number: int, frame: FrameType | None) -> None:
        signal.signal(number, before)
        came.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for number in came:
            signal.raise_signal(number)


@contextmanager
def _stderr_captured(lines: list[str]) -> Iterator[None]:
    """Collect what the process and its C libraries write to standard error."""
    sys.stderr.flush()
    original = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(original, 2)
            os.close(original)
            file.seek(0)
            lines.extend(file.read().decode(errors="replace").splitlines(keepends=True))
