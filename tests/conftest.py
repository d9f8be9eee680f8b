"""Binds the backend that the tests judge; one process judges one backend.

The fixtures of one folder each import what they need when they are asked for.
"""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from duet import backend
from duet.backend.select import ENVIRONMENT_VARIABLE, FRAMEWORKS
from duet.utils.files.array_cache import VARIABLE as CACHE_VARIABLE
from duet.utils.project import PROJECT
from tests import environments
from tests.one_suite import CLAIMS, FolderSeconds, SharedFiles, is_left_out


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return is_left_out(collection_path, os.environ) or None


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
    os.environ.setdefault(CACHE_VARIABLE, "")  # nothing is kept in the folder of who tests
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # of those who import it themselves
    name = os.environ.get(ENVIRONMENT_VARIABLE)
    if not name:
        raise pytest.UsageError(
            f"set {ENVIRONMENT_VARIABLE} to the backend to test: {' or '.join(FRAMEWORKS)}"
        )
    try:
        backend.use(name)
    except backend.BackendError as error:
        raise pytest.UsageError(str(error)) from error
    gc.disable()  # until all is collected
    config.pluginmanager.register(FolderSeconds())
    if claims := os.environ.get(CLAIMS):
        config.pluginmanager.register(SharedFiles(Path(claims)))


def pytest_collection() -> None:
    environments.collecting = True


def pytest_collection_finish() -> None:
    environments.collecting = False
    gc.freeze()  # what is imported stays: the collector need not look through it again and again
    gc.enable()
    gc.set_threshold(20_000, 20, 20)  # looking for cycles as often as usual is a tenth of the time


@pytest.fixture(autouse=True)
def signals_come_back() -> Iterator[None]:
    """A command that a test runs in this process answers signals until it has ended."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory):
    """Drawn images with outlines, 22 of at most 80 pixels, for most tests of the loaders."""
    from duet.utils.data.shapes.dataset import ShapesConfig, draw_dataset
    from duet.utils.data.sources.dataset import load_dataset
    from duet.utils.data.sources.splits import load_split

    config = ShapesConfig(22, 1, image_side=80, outlines=True)
    folder = tmp_path_factory.mktemp("data") / "shapes"
    return load_split(load_dataset(draw_dataset(folder, config)), "train")


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights of the smallest detector, which finds something."""
    from tests.small import write_tiny_weights

    return write_tiny_weights(tmp_path_factory.mktemp("weights"))


@pytest.fixture
def validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that runs val.py into tmp_path/runs and returns its result."""
    import val
    from duet.utils.report import task_reports

    def run(*flags: object, plots: bool = False):
        if not plots:  # they take most of the time
            for name in ("BOXES", "MASKS", "CLASSES"):
                report = getattr(task_reports, name)._replace(plot=lambda *arguments: None)
                monkeypatch.setattr(task_reports, name, report)
        words = ("--workers", 0, "--device", "cpu", "--project", tmp_path / "runs", "--exist-ok")
        return val.main([str(word) for word in (*words, *flags)])

    return run


@pytest.fixture(scope="session")
def graph_of(tmp_path_factory: pytest.TempPathFactory):
    """Return what makes the file of a name of `tests/export/every_kind.py`, new each time."""
    from tests.export.every_kind import write_every_kind

    return write_every_kind(tmp_path_factory.mktemp("graphs"))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built once, also for both suites where they run side by side."""
    from duet.utils.system.files import lock

    folder = Path(os.environ.get(CLAIMS) or "no folder")
    folder = folder if folder.is_dir() else tmp_path_factory.mktemp("built")
    with open(folder / "site.lock", "w") as file:
        lock(file.fileno(), wait=True)  # until the other suite has built it
        if not (folder / "site").exists():
            done = environments.build_site(PROJECT, folder / "building")
            assert done.returncode == 0, done.stdout + done.stderr
            (folder / "building").rename(folder / "site")
    return folder / "site"
