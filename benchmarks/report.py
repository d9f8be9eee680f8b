"""One report of a run of benchmarks, or a run beside earlier ones.

    python -m benchmarks.report runs/bench
    python -m benchmarks.report runs/bench runs/bench-2 runs/bench-3

The first writes report.md into the folder, from the JSON there alone; `python -m benchmarks` does
so by itself. The second prints which figures of the earlier runs the last one repeats.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.goals import GOALS, Goal
from benchmarks.repeats import compare_runs
from benchmarks.results import TESTS_NAME, Results, Script, read_results
from benchmarks.side_by_side import Timing
from benchmarks.step_profile import in_words
from utils.cli.flags import new_parser
from utils.comparison.words import NONE, number
from utils.files.atomic import atomic_text_file
from utils.processes.command import run_command
from utils.screen.text import printable_lines

NAME = "report.md"
TESTS_LINES = 12  # of the end of what pytest printed


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table, and an empty one."""
    lines = [heading, ["---"] * len(heading), *rows]
    return [*(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines), ""]


def times(timing: Timing | None) -> str:
    """Return "name: median (fastest to slowest)"."""
    if timing is None:
        return NONE
    spread = f"{number(timing.fastest)} to {number(timing.slowest)}"
    speed = timing.images_per_second
    of_images = "" if speed is None else f", {number(speed)} images/s"
    return f"{timing.name}: {number(timing.median)} ({spread}){of_images}"


def ratio(timing: Timing) -> str:
    """Return the ratio of the medians, with the middle half of those turn by turn if known."""
    text = number(timing.ratio)
    if timing.ratio_from is None or timing.ratio_to is None:
        return text
    return f"{text} ({number(timing.ratio_from)} to {number(timing.ratio_to)})"


def head_lines(results: Results) -> list[str]:
    """Return where and how the run was made, and how each of its jobs ended."""
    run = results.run
    if run is None:
        return ["The scripts were run one by one.", ""]
    limit = "none" if run["minutes"] is None else f"--minutes {run['minutes']:g}"
    lines = [f"{run['host']}, {run['date']}, load average {number(run['load_average'])}"]
    lines[0] += f" at the end; time limit: {limit}."
    lines.append("")
    rows = [(job["name"], job["state"], number(job["seconds"])) for job in run["jobs"]]
    return [*lines, *table(("job", "ended", "seconds"), rows), *other_lines(results)]


def other_lines(results: Results) -> list[str]:
    """Return what is in the folder of a run and was not measured by it, with its date."""
    dates = {script.name: script.date for script in results.scripts}
    if results.tests is not None:
        dates[TESTS_NAME] = "at an unknown time"
    for job in results.run["jobs"] if results.run else []:
        dates.pop(job["name"], None)
    named = "; ".join(f"{name}: {date}" for name, date in dates.items())
    return [f"Not measured by this run, but earlier or later: {named}.", ""] if named else []


def script_lines(scripts: Sequence[Script]) -> list[str]:
    rows = [
        (x.name, x.machine, x.date, number(x.load_average), " ".join(x.command[1:]))
        for x in scripts
    ]
    heading = ("script", "machine", "date", "load average at the end", "flags")
    return ["## Scripts", "", *table(heading, rows)] if rows else []


def ratio_lines(scripts: Sequence[Script]) -> list[str]:
    """Return the table of all rows beside the references of their cases."""
    rows = [
        (
            script.name, fast.case, times(plain), times(fast), ratio(fast),
            number(fast.ratio_fastest), stated_goals(script, fast), number(fast.others),
        )
        for script in scripts
        for plain, fast in script.compared()
        if fast.peak_bytes is None
    ]  # fmt: skip
    if not rows:
        return []
    heading = (
        "script", "case", "reference, ms", "beside it, ms", "ratio", "of the fastest", "goal",
        "others",
    )  # fmt: skip
    return [
        "## Times beside a reference", "",
        "The reference of a fast path is the plain one; of what is no fast path, as in `detect`,",
        "`limits` and `threads`, it is what the row names. Medians in milliseconds (fastest to",
        "slowest); their ratio (middle half of the ratios turn by turn); the ratio of the fastest",
        "runs; cores that other processes took meanwhile.", "",
        *table(heading, rows),
    ]  # fmt: skip


def stated_goals(script: Script, timing: Timing) -> str:
    alone = replace(script, timings=[timing])
    return ", ".join(goal.limit() for goal in GOALS if goal.rows([alone])) or NONE


def step_lines(scripts: Sequence[Script]) -> list[str]:
    """Return the rows whose images and memory are known: training steps."""
    rows = [
        (
            timing.case, timing.name, number(timing.median),
            f"{number(timing.fastest)} to {number(timing.slowest)}",
            number(timing.images_per_second), number(timing.peak_gib),
            NONE if timing.host_waits is None else str(timing.host_waits), number(timing.others),
        )
        for script in scripts
        for timing in script.timings
        if timing.peak_bytes is not None
    ]  # fmt: skip
    if not rows:
        return []
    heading = (
        "model, batch", "step", "median, ms", "fastest to slowest", "images/s", "peak, GiB",
        "waits of the host", "others",
    )  # fmt: skip
    return ["## Training steps", "", *speed_lines(scripts), *table(heading, rows)]


def speed_lines(scripts: Sequence[Script]) -> list[str]:
    """Return images/s by case and kind of step, as docs/en/performance.md has them."""
    speeds = {
        (timing.case, timing.name): number(timing.images_per_second)
        for script in scripts
        for timing in script.timings
        if timing.peak_bytes is not None
    }
    cases, kinds = (list(dict.fromkeys(part)) for part in zip(*speeds, strict=True))
    rows = [(case, *(speeds.get((case, kind), NONE) for kind in kinds)) for case in cases]
    return ["Images/s:", "", *table(("model, batch", *kinds), rows)]


def profile_lines(scripts: Sequence[Script]) -> list[str]:
    lines = []
    for profile in (profile for script in scripts for profile in script.profiles):
        lines += [f"## One step of {profile['case']}", "", f"{in_words(profile)}.", ""]
        rows = [(x["name"], number(x["milliseconds"])) for x in profile["operations"]]
        lines += table(("operation", "milliseconds of the device"), rows)
    return lines


def goal_lines(scripts: Sequence[Script]) -> list[str]:
    """Return for each goal whether it is reached."""
    devices = {script.device for script in scripts}
    rows = [goal_row(goal, scripts) for goal in GOALS if any(map(goal.is_for, devices))]
    heading = ("script", "case", "row", "goal", "measured", "of the fastest", "others", "reached")
    return ["## Goals", "", *table(heading, rows)] if rows else []


def goal_row(goal: Goal, scripts: Sequence[Script]) -> tuple[str, ...]:
    rows = goal.rows(scripts)
    if not rows:
        return goal.script, goal.case, goal.name, goal.limit(), NONE, NONE, NONE, "not measured"
    worst = max(rows, key=goal.value)
    return (
        goal.script, goal.case, goal.name, goal.limit(), number(goal.value(worst)),
        number(worst.ratio_fastest), number(worst.others),
        "yes" if goal.value(worst) <= goal.most else "no",
    )  # fmt: skip


def missing_lines(results: Results) -> list[str]:
    """Return what has no figure, and why."""
    jobs = results.run["jobs"] if results.run else []
    rows = [(job["name"], NONE, job["state"]) for job in jobs if job["state"] != "done"]
    rows += [(x.name, left["case"], left["reason"]) for x in results.scripts for left in x.left_out]
    return ["## Without a figure", "", *table(("job", "case", "reason"), rows)] if rows else []


def tests_lines(printed: str | None) -> list[str]:
    if printed is None:
        return []
    return ["## Tests", "", "```", *printed.splitlines()[-TESTS_LINES:], "```", ""]


def markdown(results: Results) -> str:
    """Return the report of a run."""
    scripts = results.scripts
    lines = [
        "# Benchmarks", "", *head_lines(results), *step_lines(scripts), *profile_lines(scripts),
        *ratio_lines(scripts), *goal_lines(scripts), *missing_lines(results),
        *tests_lines(results.tests), *script_lines(scripts),
    ]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


def write_report(folder: Path) -> Path:
    """Write the report of a run into its folder; return its path."""
    path = folder / NAME
    with atomic_text_file(path) as file:
        file.write(printable_lines(markdown(read_results(folder))))
    return path


def main() -> None:
    parser = new_parser("python -m benchmarks.report", "The report of a run of benchmarks.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER",
        help="of --output; of several the last is compared with those before")  # fmt: skip
    flags = parser.parse_args()
    if len(flags.folders) == 1:
        print(write_report(flags.folders[0]))
        return
    *earlier, last = map(read_results, flags.folders)
    print("\n".join(compare_runs(earlier, last)))


if __name__ == "__main__":
    run_command(main)
