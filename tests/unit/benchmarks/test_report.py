"""benchmarks/report.py: one report of a run, made of its JSON alone."""

import json

from benchmarks import report
from benchmarks.side_by_side import Timing, write_json

PLAIN = Timing("10000 boxes", "plain", 4.0, 3.0, 9.0, 5, 1.0, 0.25, 1.0, 1.0, 1.0)
FAST = Timing("10000 boxes", "fused", 1.0, 0.5, 8.0, 5, 0.25, 0.25, 0.2, 0.3, 0.125)
STEP = Timing("n, 16 x 640 px", "float32, eager", 20.0, 19.0, 25.0, 5, float("nan"), 0.0,
    images=16, peak_bytes=3 << 30)  # fmt: skip
RUN = {"host": "EPYC, 4 cores", "date": "2026-01-02", "minutes": 10.0, "load_average": None,
    "jobs": [{"name": "ciou", "state": "done", "seconds": 3.0},
             {"name": "ema", "state": "failed with exit code 1", "seconds": 1.0}]}  # fmt: skip


def test_a_report_is_made_of_the_json_alone(tmp_path, monkeypatch, capsys):
    left = [{"case": "m, 64", "reason": "out of memory"}]
    write_json(tmp_path / "ciou.json", "PyTorch 2, EPYC", [PLAIN, FAST])
    write_json(tmp_path / "step_table.json", "PyTorch 2", [STEP], "cuda:0", left_out=left)
    (tmp_path / "epochs.json").write_text('{"of": "another program"}')
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    assert report.write_report(tmp_path) == tmp_path / "report.md"
    lines = (tmp_path / "report.md").read_text().splitlines()
    for line in (
        "EPYC, 4 cores, 2026-01-02, load average – at the end; time limit: --minutes 10.",
        "| ciou | done | 3.00 |",
        "| ciou | 10000 boxes | fused | 1.00 | 0.500 to 8.00 | 0.250 | 0.200 to 0.300 | 0.125 "
        "| – | – | 0.250 |",
        "| step_table | n, 16 x 640 px | float32, eager | 20.0 | 19.0 to 25.0 | – | – | – | 800 "
        "| 3.00 | 0.000 |",
        "| ema | failed with exit code 1 | 1.00 |",
        "| step_table | m, 64 | out of memory |",
    ):
        assert lines.count(line) == 1, line
    assert "another program" not in "".join(lines)
