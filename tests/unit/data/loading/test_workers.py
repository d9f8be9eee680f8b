"""Worker processes: how they start, fail and end."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import cv2
import numpy as np
import pytest

from duet import backend
from duet.utils.data.loading.batches import TrainBatches, TrainRecipe, ValRecipe
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.data.loading.order import Epoch
from duet.utils.data.loading.worker_process import start_process
from duet.utils.data.loading.workers import SharedSource, WorkerPool
from duet.utils.data.shapes.dataset import ShapesConfig, draw_dataset
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.samples import table_of
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import DatasetError, WorkerError
from duet.utils.project import PROJECT
from duet.utils.system.machine import descendants
from tests.environments import has_ended, wait_until
from tests.unit.data.compared import EVERYTHING, digest
from tests.unit.data.sources.test_samples import make_sample

CRASHING_INDEX = 3


def end_by(number: signal.Signals) -> None:
    """Let the decoder send this process a signal."""

    def crash(*arguments):
        signal.raise_signal(number)

    cv2.imdecode = crash


class CrashingBatches(TrainBatches):
    """Training batches of which one image ends a worker, as a damaged one ends a decoder."""

    ends_by = signal.SIGSEGV

    def _source(self, index):
        source = super()._source(index)

        def decode():
            end_by(self.ends_by)
            return source.decode()

        return source._replace(decode=decode) if index == CRASHING_INDEX else source


class KilledBatches(CrashingBatches):
    """Likewise, as the kernel does to a process that takes too much memory."""

    ends_by = signal.SIGKILL


@pytest.fixture(scope="module")
def dataset_yaml(tmp_path_factory):
    config = ShapesConfig(num_train=20, num_val=1, image_side=64)
    return draw_dataset(tmp_path_factory.mktemp("data") / "shapes", config)


@pytest.fixture
def loader(samples):
    with TrainLoader(samples, TrainRecipe(64, 2, EVERYTHING), workers=2) as loader:
        yield loader
    assert worker_ids() == []


def worker_ids() -> list[int]:
    found = []
    for process_id in (process.pid for process in descendants(os.getpid())):
        with contextlib.suppress(FileNotFoundError):
            if b"worker_process" in Path(f"/proc/{process_id}/cmdline").read_bytes():
                found.append(process_id)
    return found


def test_workers_load_no_framework(loader):
    assert len(list(loader.epoch(0))) == 11
    for process_id in worker_ids():
        libraries = Path(f"/proc/{process_id}/maps").read_text()
        assert "site-packages/cv2/" in libraries
        assert "site-packages/torch/" not in libraries
        assert "site-packages/oneflow/" not in libraries


def test_epoch_may_be_abandoned_midway(loader):
    expected = [digest(batch) for batch in loader.epoch(4)]
    for _ in range(2):
        abandoned = loader.epoch(3)
        next(abandoned)
        assert [digest(batch) for batch in loader.epoch(4)] == expected
    with pytest.raises(WorkerError, match="ended by the start of another"):
        next(abandoned)


def test_closing_midway_through_an_epoch_leaves_nothing(samples):
    before = set(os.listdir("/proc/self/fd"))
    with TrainLoader(samples, TrainRecipe(64, 2, EVERYTHING), workers=2) as loader:
        batches = loader.epoch(0)
        next(batches)
        running = worker_ids()
        assert len(running) == 2
    assert worker_ids() == []
    assert all(map(has_ended, running))
    with pytest.raises(WorkerError, match="by close"):
        next(batches)
    # The file of the arrays stays for the next start.
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 1


def test_forked_process_does_not_close_parent_workers(loader):
    batches = loader.epoch(0)
    next(batches)
    forked = os.fork()
    if forked == 0:
        loader.close()
        os._exit(0)
    assert os.waitpid(forked, 0)[1] == 0
    assert len(list(batches)) == 10


@pytest.mark.parametrize(
    ("batches", "name"), [(CrashingBatches, "SIGSEGV"), (KilledBatches, "SIGKILL")]
)
@pytest.mark.parametrize("workers", [1, 3])
def test_dead_worker_is_an_error_naming_the_crashing_image(samples, capfd, batches, name, workers):
    source = batches(table_of(samples), TrainRecipe(64, 2))
    pool = WorkerPool(source, workers)
    with pytest.raises(WorkerError, match=f"died: {name}; if a stack above names an image"):
        list(pool.run(Epoch(0)))
    assert worker_ids() == []
    path = samples[CRASHING_INDEX].image_path
    assert (f'File "<image {path}>"' in capfd.readouterr().err) is (name == "SIGSEGV")


PARENT = """
import sys, time
from tests.unit.data.loading.test_workers import *
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
samples = load_split(load_dataset(sys.argv[1]), "train")
loader = TrainLoader(samples, TrainRecipe(64, 2, EVERYTHING), workers=2)
loader.start()
"""
INTERRUPT_WORKERS = """
for process_id in worker_ids():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        os.kill(process_id, number)
"""
REPORT_WORKERS = """
batches = loader.epoch(0)
next(batches)
print(*worker_ids(), flush=True)
"""


def start_parent(dataset_yaml, script):
    return subprocess.Popen(
        [sys.executable, "-c", script, str(dataset_yaml)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_workers_end_with_a_killed_parent(dataset_yaml):
    with start_parent(dataset_yaml, PARENT + REPORT_WORKERS + "time.sleep(60)") as parent:
        running = parent.stdout.readline().split()
        assert len(running) == 2
        parent.kill()
        wait_until(lambda: all(map(has_ended, running)))


def test_workers_ignore_keyboard_and_cluster_signals(dataset_yaml):
    script = PARENT + INTERRUPT_WORKERS + REPORT_WORKERS + INTERRUPT_WORKERS
    script += "print(len(list(batches)), signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    with start_parent(dataset_yaml, script) as parent:
        printed, errors = parent.communicate(timeout=30)
    assert errors == ""
    assert printed.splitlines()[-1] == "9 set()"  # the other batches came; ours is not blocked


def test_unclosed_loader_ends_quietly(dataset_yaml):
    with start_parent(dataset_yaml, PARENT + REPORT_WORKERS) as parent:
        printed, errors = parent.communicate(timeout=30)
    assert parent.returncode == 0
    assert errors == ""
    wait_until(lambda: all(map(has_ended, printed.split())))


@pytest.mark.parametrize("workers", [0, 3])
def test_lent_batches_are_equal_and_reuse_a_few_slots(samples, workers):
    backend.use()
    with TrainLoader(samples, TrainRecipe(64, 3, EVERYTHING), workers) as loader:
        expected = [digest(batch) for batch in loader.epoch(0)]
        loader.lend_to("cpu")
        lent, places = [], []
        for batch in loader.epoch(0):
            lent.append(digest(batch))
            places.append(batch.images.ctypes.data)
    assert lent == expected and len(expected) == 8
    if workers:
        assert len(set(places)) == 4  # two in the making, two in use


class SignedBatches(TrainBatches):
    """Training batches whose images have the process number of their builder in front."""

    def build(self, epoch, batch_index, images, part):
        batch = super().build(epoch, batch_index, images, part)
        for image in images:
            image.reshape(-1)[:4] = np.array([os.getpid()], np.uint32).view(np.uint8)
        return batch


@pytest.mark.parametrize(("workers", "batch_size"), [(2, 4), (3, 2), (4, 1)])
def test_all_workers_build_parts_of_the_next_batches(samples, workers, batch_size):
    pool = WorkerPool(SignedBatches(table_of(samples), TrainRecipe(64, batch_size)), workers)
    builders = [
        image.reshape(-1)[:4].view(np.uint32)[0]
        for batch in pool.run(Epoch(0))
        for image in batch.images
    ]
    pool.close()
    assert len(builders) == len(samples)
    for first in range(0, len(builders) - 2 * workers, batch_size):
        assert len(set(builders[first : first + max(workers, batch_size)])) == workers


def wait_for_replies(loader) -> None:
    """Wait until the workers have built what they were asked for."""
    for worker in loader._pool._workers:
        assert worker.connection.poll(20)


@pytest.fixture
def own_samples(dataset_yaml, tmp_path):
    """Samples whose files a test may remove."""
    shutil.copytree(dataset_yaml.parent, tmp_path / "shapes")
    return load_split(load_dataset(tmp_path / "shapes" / dataset_yaml.name), "train")


def remove_images(samples) -> None:
    for sample in samples:
        sample.image_path.unlink()


@pytest.mark.parametrize("loses", ["nothing", "the last epoch", "weighted samples"])
def test_next_epoch_starts_before_this_one_ends(own_samples, loses):
    recipe = TrainRecipe(64, 4, image_weights=loses == "weighted samples")
    with TrainLoader(own_samples, recipe, workers=2) as loader:
        first = digest(next(loader.epoch(1)))
        list(loader.epoch(0, is_last=loses == "the last epoch"))
        if loses == "nothing":
            wait_for_replies(loader)
        remove_images(own_samples)
        batches = loader.epoch(1)
        if loses == "nothing":
            assert digest(next(batches)) == first
        with pytest.raises(DatasetError, match="cannot be read"):
            list(batches)


def test_started_validation_prefetches_its_first_batches(own_samples):
    with ValLoader(own_samples, ValRecipe(64, 4), workers=2) as loader:
        first = digest(next(iter(loader)))
        list(loader)
        loader.start()
        wait_for_replies(loader)
        remove_images(own_samples)
        batches = iter(loader)
        assert digest(next(batches)) == first
        with pytest.raises(DatasetError, match="cannot be read"):
            list(batches)


def own_kib() -> int:
    """The memory of this process alone; that of a shared file is none of it."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


def answer(connection: Connection, source: TrainBatches) -> None:
    connection.send((own_kib(), source.samples.class_index.flags.writeable))


def answers(num_objects: int) -> list[tuple[int, bool]]:
    """The memory of two processes of one source, and whether they may write to its arrays."""
    samples, found = table_of([make_sample(0, 0), make_sample(1, num_objects)]), []
    shared = SharedSource(TrainBatches(samples, TrainRecipe(64, 2)))
    for _ in range(2):
        process, connection = start_process(answer, shared)
        with process, connection:
            found.append(connection.recv())
    return found


def test_workers_share_the_arrays_read_only():
    (few_kib, _), _ = answers(0)
    for kib, is_writable in answers(1_000_000):  # 24 MB
        assert not is_writable and kib - few_kib < 8_000


UNGUARDED = """
import os, sys
os.chdir(os.path.dirname(sys.argv[1]))  # away from what "" in sys.path means
from multiprocessing import set_start_method
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
print("once", flush=True)
samples = load_split(load_dataset(sys.argv[1]), "train")
with TrainLoader(samples, TrainRecipe(64, 4), workers=2) as loader:
    print(len(list(loader.epoch(0))))
set_start_method("spawn")
"""


def test_workers_do_not_import_main_or_fix_the_start_method(dataset_yaml, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, program, dataset_yaml], cwd=PROJECT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)}, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout.split(), done.stderr) == (["once", "5"], "")
