"""python -m benchmarks: every script as a process of its own, within a time limit."""

import os
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as every
from benchmarks import side_by_side
from duet.utils.project import PROJECT


def run_every(monkeypatch, *flags, ended=None):
    """The commands that one command runs; `ended` has the exit codes of jobs, of others it is 0."""
    lines = {}

    def run_within(line, environment, seconds):
        name = Path(line[-1]).stem
        lines[name] = (line, environment, seconds)
        row = side_by_side.Timing("case", "name", 2.0, 1.0, 3.0, 1, 1.0)
        side_by_side.write_json(Path(line[-1]), "machine", [row])
        return (ended or {}).get(name, 0)

    monkeypatch.setattr(every, "run_within", run_within)
    monkeypatch.setattr("sys.argv", ["benchmarks", *map(str, flags)])
    with pytest.raises(SystemExit) as end:
        every.main()
    return lines, end.value.code


def test_one_command_runs_every_script_and_names_those_that_fail(monkeypatch, tmp_path, capsys):
    folder = tmp_path / "bench"
    ended = {"ema": 1, "val": None}
    lines, code = run_every(monkeypatch, "--device", "cpu", "--output", folder, ended=ended)
    assert code == 1
    printed = capsys.readouterr().out
    assert printed.endswith(f"report in {folder / 'report.md'}\nema: failed with exit code 1\n"
                            "val: ended by --minutes\n")  # fmt: skip
    assert "| ema | failed with exit code 1 | " in (folder / "report.md").read_text()
    assert list(lines) == list(every.ON_CPU)
    for name, (line, environment, seconds) in lines.items():
        assert line[:3] == [sys.executable, "-m", f"benchmarks.{name}"]
        assert ("OMP_NUM_THREADS", "1") in environment.items() or name != "loader"
        assert seconds == float("inf")


def test_a_gpu_is_told_by_its_own_jobs_in_their_order(monkeypatch):
    monkeypatch.setattr(every.backend, "use", lambda name=None: "torch")
    lines = {name: " ".join(every.line_of(name, flags, "cuda:0", Path("x.json")))
             for name, flags in every.ON_GPU.items()}  # fmt: skip
    assert list(lines)[:2] == ["step_table", "ciou"]
    assert "benchmarks.step_table --execution compiled" in lines["step_table_compiled"]
    assert "--device cpu" in lines["loader"] and "--device cuda:0" in lines["val"]
    scripts = {path.stem for path in (PROJECT / "benchmarks").glob("*.py")}
    assert {name.removesuffix("_compiled") for name in lines} <= scripts
    assert every.ON_CPU.keys() <= scripts


def test_a_job_is_ended_at_its_limit_with_what_it_started(tmp_path):
    child = "import time; time.sleep(100)"
    code = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {child!r}]); "
    code += f"open({str(tmp_path / 'out')!r}, 'w').write(str(p.pid)); p.wait()"
    assert every.run_within([sys.executable, "-c", code], dict(os.environ), 1.0) is None
    assert not Path(f"/proc/{int((tmp_path / 'out').read_text())}").exists()
    done = every.run_within([sys.executable, "-c", "exit(3)"], dict(os.environ), float("inf"))
    assert done == 3
