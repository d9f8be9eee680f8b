"""What other processes take while something is measured, told apart from its own work."""

import os
import subprocess
import sys
import time

import pytest

from duet.utils.comparison import load
from duet.utils.comparison.load import LoadWatch

WORK = "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass"


class System:
    """Time, and what others take of it on a machine of four cores, of which two are usable."""

    def __init__(self, monkeypatch, folder):
        self.file, self.ticks, self.now = folder / "stat", 1000, 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(load, "STAT", self.file)
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
        monkeypatch.setattr(load, "_own_seconds", lambda: 5.0)
        self.take(0)

    def take(self, seconds):
        self.ticks += int(seconds * load.TICKS)
        idle = 10**7  # and iowait, guest: no work, or counted as that of a user
        core = f"{self.ticks} 0 0 {idle} {idle} 0 0 0 {idle} 0"
        far = f"{10**6 * self.ticks} 0 0 0 0 0 0 0 0 0"
        self.file.write_text(f"cpu 1 2 3\ncpu0 {core}\ncpu1 0 {core}\ncpu2 {far}\nintr 5\n")


def test_only_the_work_of_others_on_the_usable_cores_counts(monkeypatch, tmp_path):
    system = System(monkeypatch, tmp_path)
    watch = LoadWatch()
    system.now += 0.01
    assert watch.others() is None  # too short: a tick or two would be more than the cores have
    system.now += 9.99
    assert watch.others() == 0
    system.take(6)  # on either core
    assert watch.others() == pytest.approx(1.2)


def test_own_work_and_that_of_processes_that_run_or_have_ended_is_not_of_others():
    before = load._own_seconds()
    subprocess.run([sys.executable, "-c", WORK], check=True)
    ended = load._own_seconds()
    assert ended - before > 0.5
    with subprocess.Popen([sys.executable, "-c", WORK + "\ninput()"], stdin=subprocess.PIPE) as one:
        deadline = time.monotonic() + 60
        while load._own_seconds() - ended < 0.5:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        one.stdin.close()
        one.wait()
    assert load._own_seconds() - ended > 0.5
