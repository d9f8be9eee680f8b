"""benchmarks/step_table.py: rows of steps, and why some have no figure."""

import json
from types import SimpleNamespace

from benchmarks import step_table
from duet import backend
from tests.small import write_tiny_model


def run(monkeypatch, module, tmp_path, *flags):
    path = tmp_path / "steps.json"
    words = [module.__name__, *flags, "--img", 64, "--batch", 2, "--device", "cpu"]
    monkeypatch.setattr("sys.argv", [*map(str, words), "--repeats", "3", "--json", str(path)])
    module.main()
    return json.loads(path.read_text())


def test_one_row_is_measured_here(monkeypatch, tmp_path, capsys):
    model = write_tiny_model(tmp_path)
    only = ("--precision", "float32", "--execution", "eager", "--warm-up", 1)
    document = run(monkeypatch, step_table, tmp_path, "--models", model, *only)
    (row,) = document["timings"]
    assert (row["case"], row["name"]) == (f"{model}, 2 x 64 px", "float32, eager")
    found = (row["runs"], row["images"], document["left_out"])
    assert found == (3, 2, [])
    assert 0 < row["fastest"] <= row["median"] <= row["slowest"]
    assert 2**20 < row["peak_bytes"] < 2**40
    assert f"{model}, 2 x 64 px, float32, eager: " in capsys.readouterr().out


def test_rows_are_processes_of_their_own_and_each_failure_has_its_reason(monkeypatch, tmp_path):
    """The JSON is complete after each row: it names those that are still to come."""
    so_far, lines = [], []

    def run_cell(line, **_):
        lines.append(line)
        document = json.loads((tmp_path / "steps.json").read_text())
        so_far.append([row["reason"][:11] for row in document["left_out"]])
        model, path = (line[line.index(flag) + 1] for flag in ("--models", "--json"))
        if model == "m":
            return SimpleNamespace(returncode=-6, stderr="first line\nlast line\n")
        left = [{"case": "s", "reason": "out of memory"}] if model == "s" else []
        rows = [] if left else [{"case": "n, 2 x 64 px", "name": "float32, eager", "median": 4.0,
            "fastest": 3.0, "slowest": 5.0, "runs": 3, "ratio": None, "images": 2,
            "peak_bytes": 1}]  # fmt: skip
        with open(path, "w") as file:
            json.dump({"timings": rows, "left_out": left}, file)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(step_table.subprocess, "run", run_cell)
    only = ("--precision", "float32", "--execution", "eager")
    document = run(monkeypatch, step_table, tmp_path, "--models", "n", "s", "m", *only)
    assert [row["case"] for row in document["timings"]] == ["n, 2 x 64 px"]
    assert document["left_out"] == [
        {"case": "s, 2 x 64 px, float32, eager", "reason": "out of memory"},
        {"case": "m, 2 x 64 px, float32, eager", "reason": "exit code -6: last line"},
    ]
    assert so_far == [["not reached"] * 3, ["not reached"] * 2, ["out of memo", "not reached"]]
    assert all(line[line.index("--backend") + 1] == backend.use() for line in lines)
