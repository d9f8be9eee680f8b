"""benchmarks/repeats.py: whether a second run lies within the stated spread of the first."""

import dataclasses
import math

from benchmarks import report
from benchmarks.repeats import compare_runs
from benchmarks.results import read_results
from benchmarks.side_by_side import Timing, write_json

PLAIN = Timing("boxes", "plain", 4.0, 3.0, 9.0, 5, 1.0, 0.25, 1.0, 1.0, 1.0)
FAST = Timing("boxes", "fused", 1.0, 0.5, 8.0, 5, 0.25, 0.25, 0.2, 0.3, 0.125)


def folders(tmp_path, first, second, machines=("EPYC", "EPYC")):
    """The folders of two runs of benchmarks.ciou with these rows."""
    found = []
    for name, rows, machine in zip("ab", (first, second), machines, strict=True):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        write_json(tmp_path / name / "ciou.json", machine, rows)
        found.append(tmp_path / name)
    return found


def lines(*args, **more):
    first, second = map(read_results, folders(*args, **more))
    return compare_runs([first], second)


def changed(timing=FAST, **values):
    return dataclasses.replace(timing, **values)


def test_a_ratio_within_the_spread_of_the_first_repeats(tmp_path):
    found = lines(tmp_path, [PLAIN, FAST], [PLAIN, changed(ratio=0.3)])
    assert found == [
        "ciou: boxes, fused: 0.250 (0.200 to 0.300), then 0.300: repeats",
        "1 of 1 cases repeat; not: –",
    ]


def test_a_ratio_outside_of_it_does_not_and_is_named_last(tmp_path):
    *_, one, last = lines(tmp_path, [PLAIN, FAST], [PLAIN, changed(ratio=0.301)])
    assert one.endswith("then 0.301: does not repeat")
    assert last == "0 of 1 cases repeat; not: ciou: boxes, fused"
    # The spread is that of the first run: one of the second's says nothing.
    *_, last = lines(tmp_path, [PLAIN, FAST], [PLAIN, changed(ratio=0.4, ratio_from=0.1)])
    assert last.startswith("0 of 1")


def test_the_spread_holds_its_own_ratio(tmp_path):
    """The ratio of medians may lie outside of the middle half of the ratios turn by turn."""
    outside = changed(ratio=0.35)
    one, _ = lines(tmp_path, [PLAIN, outside], [PLAIN, outside])
    assert one == "ciou: boxes, fused: 0.350 (0.200 to 0.350), then 0.350: repeats"


def test_without_turns_the_times_say_how_far_a_ratio_goes(tmp_path):
    first = changed(ratio_from=None, ratio_to=None, fastest=0.9, slowest=1.5)
    one, _ = lines(tmp_path, [PLAIN, first], [PLAIN, changed(first, ratio=0.5)])  # 1.5 / 3
    assert one == "ciou: boxes, fused: 0.250 (0.100 to 0.500), then 0.500: repeats"
    one, _ = lines(tmp_path, [PLAIN, first], [PLAIN, changed(first, ratio=0.51)])
    assert one.endswith("does not repeat")


def test_a_row_without_a_plain_path_repeats_by_its_median(tmp_path):
    alone = changed(ratio=math.nan, ratio_from=None, ratio_to=None)
    one, _ = lines(tmp_path, [alone], [changed(alone, median=8.0)])
    assert one == "ciou: boxes, fused: 1.00 ms (0.500 to 8.00), then 8.00 ms: repeats"
    one, _ = lines(tmp_path, [alone], [changed(alone, median=8.1)])
    assert one.endswith("does not repeat")


def test_the_spread_of_several_runs_is_that_between_them(tmp_path):
    """The middle halves are 0.2 to 0.3 and 0.4 to 0.5: 0.35 lies in neither, and between them."""
    other = changed(ratio=0.45, ratio_from=0.4, ratio_to=0.5)
    runs = [
        read_results(folder)
        for ratio, name in ((0.35, "between"), (0.51, "outside"))
        for folder in folders(tmp_path / name, [PLAIN, other], [PLAIN, changed(ratio=ratio)])
    ]
    first = read_results(folders(tmp_path / "first", [PLAIN, FAST], [PLAIN, FAST])[0])
    between, last = compare_runs([first, runs[0]], runs[1])
    assert between == "ciou: boxes, fused: 0.250 (0.200 to 0.500), then 0.350: repeats"
    assert last == "1 of 1 cases repeat; not: –"
    assert compare_runs([first, runs[2]], runs[3])[0].endswith("then 0.510: does not repeat")


def test_a_ratio_is_not_held_against_milliseconds(tmp_path):
    """The second run has no plain path: its milliseconds happen to lie within the ratios."""
    second = changed(ratio=math.nan, median=0.25)
    one, *_ = lines(tmp_path, [PLAIN, FAST], [second])
    assert one.endswith("then 0.250 ms: does not repeat")


def test_other_cases_and_versions_are_named(tmp_path):
    more, other = changed(name="level by level"), changed(name="in parts")
    machines = ("PyTorch 2.12, EPYC", "PyTorch 2.13, EPYC")
    first, second = [PLAIN, FAST, more], [PLAIN, FAST, other]
    one, *between, last = lines(tmp_path, first, second, machines=machines)
    assert one.endswith(": repeats") and last == "1 of 1 cases repeat; not: –"
    assert between == [
        "ciou: measured on PyTorch 2.12, EPYC, cpu, then on PyTorch 2.13, EPYC, cpu",
        f"ciou: boxes, level by level: only in {tmp_path / 'a'}",
        f"ciou: boxes, in parts: only in {tmp_path / 'b'}",
    ]


def test_two_folders_are_compared_by_the_command(tmp_path, monkeypatch, capsys):
    paths = folders(tmp_path, [PLAIN, FAST], [PLAIN, FAST])
    monkeypatch.setattr("sys.argv", ["report", *map(str, paths)])
    report.main()
    assert capsys.readouterr().out.endswith("\n1 of 1 cases repeat; not: –\n")
    assert not (paths[0] / "report.md").exists()
