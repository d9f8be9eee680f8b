"""The report of a comparison: warnings, results and tables, as Markdown and as a page."""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from duet.utils.comparison.document import NONE, TOO_FEW, counted_epochs, number, spread, stage_name
from duet.utils.comparison.settings import Document
from duet.utils.files import html as page
from duet.utils.files.atomic import atomic_text_file
from duet.utils.report.plots.style import line_colour, new_figure
from duet.utils.text import count, printable, printable_lines

TITLE = "OneFlow and PyTorch, epoch by epoch"
RATIO_NOTE = "Time of the first by that of the second, epoch by epoch: above 1 the first is slower."
TIMES_NOTE = "The median of the counted epochs, and the range from the fastest to the slowest."
BACKENDS, OPTIONS = "Backends", "Options"
STAGES = "Where the seconds went"
NAME_COLUMNS = ("trainer", "variant")
CHART_WIDTH, BAR_HEIGHT = 9.0, 0.3  # inches


class Section(NamedTuple):
    """One part of the report; an empty section is left out."""

    title: str
    note: str = ""  # how to read the rows
    items: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()  # a heading, and rows of equal length


class Report(NamedTuple):
    warnings: Sequence[str]  # shown before the results
    head: Sequence[str]  # the machine and the work
    sections: Sequence[Section]


def build_report(document: Document) -> Report:
    cells = {cell["name"]: cell for cell in document["cells"]}
    found: dict[str, list[str]] = {BACKENDS: [], OPTIONS: []}
    for pair in document["pairs"]:
        sides = {cells[pair[role]]["side"] for role in ("candidate", "reference")}
        found[OPTIONS if len(sides) == 1 else BACKENDS].append(sentence(pair, cells))
    unequal = [pair["candidate"] for pair in document["pairs"] if pair["unequal"]]
    sections = [
        *(Section(kind, RATIO_NOTE, items) for kind, items in found.items()),
        Section("Seconds per epoch", TIMES_NOTE, table=table(document, partial(times, unequal))),
        Section(STAGES, table=table(document, stages)),
        Section("What training reached", table=table(document, outcomes)),
    ]
    return Report(list(warnings(document)), head(document), sections)


def head(document: Document) -> list[str]:
    machine, settings = document["machine"], document["settings"]
    facts = [
        machine["processor"], count(machine["cores"], "core"), f"{machine['memory_gib']} GiB",
        *machine["gpus"], machine["system"],
        *filter(None, dict.fromkeys(cell["framework"] for cell in document["cells"])),
        *(f"{name}={value}" for name, value in machine["variables"].items()),
    ]  # fmt: skip
    several = settings["nproc"] > 1
    processes = f", {count(settings['nproc'], 'process', 'processes')} per run" if several else ""
    drawn = f" with --split {part}" if (part := settings["train_part"]) else ""
    return [
        ", ".join(facts) + ".",
        f"{settings['data']}{drawn}, {settings['cfg'] or settings['weights']}, "
        f"{settings['image_size']} px; {count(settings['rounds'], 'round')} of "
        f"{count(settings['epochs'], 'epoch')} after {settings['warm_up_epochs']} of warm-up, "
        f"in turns{processes}; begun {document['created']}.",
    ]


def sentence(pair: Document, cells: Mapping[str, Document]) -> str:
    """Return a pair's ratio, reasons to doubt it, and differences, on one line."""
    words = [f"{names_of(pair)}: {figure(pair)}"]
    if pair["unequal"]:
        words.append("UNEQUAL WORK")
    elif pair["by_design"]:
        words.append(f"differs on purpose in {', '.join(pair['by_design'])}")
    words += [loss_words(pair["losses"])] if pair["losses"] else []
    if cells[pair["reference"]]["under_load"] or cells[pair["candidate"]]["under_load"]:
        words.append("taken under load")
    words += [f"by other means: {'; '.join(pair['means'])}"] if pair["means"] else []
    return "; ".join(words)


def names_of(pair: Document) -> str:
    return f"{pair['candidate']} against {pair['reference']}"


def figure(pair: Document) -> str:
    ratio = pair["ratio"]
    if ratio is None:
        return "refused, the work is not equal"
    low, high = number(ratio["min"]), number(ratio["max"])
    spread = f"({low} to {high} in {count(ratio['count'], 'pair')} of epochs)"
    if pair["verdict"] == TOO_FEW:
        return f"{TOO_FEW} {spread}"
    return f"{number(ratio['median'])} times the time {spread}: {pair['verdict']}"


def loss_words(gap: Document) -> str:
    if gap["worst"] is None:
        return f"a loss of batch {gap['worst_batch']} is not finite"
    return (
        f"losses at most {gap['worst']:.1e} apart in the first "
        f"{count(gap['batches'], 'batch', 'batches')} (accepted: {gap['tolerance']:g})"
    )


def warnings(document: Document) -> Iterator[str]:
    """Yield the warnings to be read before any result, worst first."""
    for pair in document["pairs"]:
        if pair["losses"] and pair["losses"]["diverged"]:
            yield f"LOSSES DIVERGE: {names_of(pair)}: {loss_words(pair['losses'])}"
    for pair in document["pairs"]:
        if pair["unequal"]:
            yield f"UNEQUAL WORK: {names_of(pair)}: {'; '.join(pair['unequal'])}"
    cells = document["cells"]
    loaded = [(run["others"], cell["name"]) for cell in cells for run in cell["under_load"]]
    if loaded:  # one line: one per run would hide the other warnings
        others, name = max(loaded)
        of = count(document["machine"]["cores"], "core")
        yield (
            f"UNDER LOAD: {count(len(loaded), 'run')}; during one of {name} other processes used "
            f"{others:.1f} of {of}; run it again when the machine is idle"
        )
    yield from (f"FAILED: {x['name']}: {x['failures'][0]}" for x in cells if x["failures"])
    if document["status"] != "complete":
        yield f"This comparison is {document['status']}: results are missing."


def table(
    document: Document, results: Callable[[Document], Mapping[str, str]]
) -> list[tuple[str, ...]]:
    """Return a heading and a row per cell, without empty columns."""
    by_cell = [(cell, results(cell)) for cell in document["cells"]]
    names = dict.fromkeys(
        name for _, found in by_cell for name, text in found.items() if text not in ("", NONE)
    )
    rows = [
        (cell["side"], cell["variant"], str(cell["batch"]), *(found.get(x, NONE) for x in names))
        for cell, found in by_cell
    ]
    return [(*NAME_COLUMNS, "batch", *names), *rows] if names else []


def times(unequal: Sequence[str], cell: Document) -> dict[str, str]:
    """Return seconds per epoch, speed and memory, with marks for reasons to doubt them."""
    epoch, process = cell["seconds_per_epoch"], cell["seconds_per_process"]
    marks = {
        "unequal work": cell["name"] in unequal,
        "failed": bool(cell["failures"]),
        "under load": bool(cell["under_load"]),
    }
    return {
        "s/epoch": number(epoch and epoch["median"]),
        "min to max": f"{number(epoch['min'])} to {number(epoch['max'])}" if epoch else NONE,
        "images/s": number(cell["images_per_second"]),
        "process s": number(process and process["median"]),
        "host MiB": number(cell["peak_host_mib"], 1),
        "device MiB": number(cell["peak_device_mib"], 1),
        "mark": ", ".join(mark for mark, is_so in marks.items() if is_so),
    }


def stages(cell: Document) -> dict[str, str]:
    return {stage_name(name): number(seconds) for name, seconds in cell["stages"].items()}


def outcomes(cell: Document) -> dict[str, str]:
    last = cell["last_epoch"] or {"train": {}, "metrics": {}}
    found = {name.replace("_loss", " loss"): x for name, x in last["train"].items()}
    return {
        name: NONE if x is None else f"{x:.5f}" for name, x in {**found, **last["metrics"]}.items()
    }


def run_lines(run: Document, kept: bool) -> list[str]:
    name = f"{run['cell']}-round{run['round']}"
    if run["failure"]:
        lines = [line for line in run["log_tail"] if not run["failure"].endswith(f": {line}")]
        return [f"{name}: {run['failure']}", *(f"    {line}" for line in lines)]
    seconds = spread([epoch["seconds"] for epoch in counted_epochs(run)])
    epoch = f"{number(seconds['median'])} s/epoch, " if seconds else ""
    whole = f"{number(run['process_seconds'])} s in all, {number(run['peak_host_mib'], 1)} MiB"
    return [f"{name}: {epoch}{whole}{' (kept)' if kept else ''}"]


def markdown(report: Report) -> str:
    lines = [f"# {TITLE}", "", *(f"> **{_escaped(line)}**\n" for line in report.warnings)]
    lines += [*map(_escaped, report.head), ""]
    for part in report.sections:
        blocks = [f"- {_escaped(item)}" for item in part.items]
        blocks += [f"| {' | '.join(map(_escaped, row))} |" for row in part.table]
        if part.table:
            rules = [":--" if name in NAME_COLUMNS else "--:" for name in part.table[0]]
            blocks.insert(len(part.items) + 1, f"| {' | '.join(rules)} |")
        if blocks:
            lines += [f"## {part.title}", "", *([part.note, ""] if part.note else []), *blocks, ""]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Escape a text: the user's names must not end a cell or become markup."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def page_of(report: Report, document: Document) -> str:
    """Return the report as a page that needs no network and runs no script."""
    blocks = [*map(page.warning, report.warnings), page.bullets(report.head)]
    for part in report.sections:
        shown = [page.bullets(part.items)] if part.items else []
        if part.title == STAGES and part.table:
            shown.append(page.svg_image(stage_chart(document), "seconds of an epoch by stage"))
        shown += [page.table(part.table[0], part.table[1:])] if part.table else []
        if shown:
            blocks.append(page.section(part.title, page.paragraph(part.note), *shown))
    return page.html_page(TITLE, blocks)


def stage_chart(document: Document) -> bytes:
    cells = [cell for cell in document["cells"] if cell["stages"]]
    rows = range(len(cells))
    figure, axes = new_figure(1, 1, CHART_WIDTH, 1.2 + BAR_HEIGHT * len(cells))
    ends = [0.0] * len(cells)
    for index, stage in enumerate(dict.fromkeys(x for cell in cells for x in cell["stages"])):
        seconds = [cell["stages"].get(stage, 0.0) for cell in cells]
        axes.barh(rows, seconds, left=ends, color=line_colour(index), label=stage_name(stage))
        ends = [end + more for end, more in zip(ends, seconds, strict=True)]
    axes.set_yticks(rows, [printable(cell["name"]).replace("$", r"\$") for cell in cells])
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    figure.legend(loc="outside lower center", ncols=5, frameon=False)
    content = io.BytesIO()
    figure.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


def write_reports(document: Document, folder: Path) -> Report:
    """Write compare.json, compare.md and compare.html into a folder; return the report."""
    report = build_report(document)
    for name, content in (
        ("compare.json", json.dumps(document, indent=1)),
        ("compare.md", printable_lines(markdown(report))),
        ("compare.html", page_of(report, document)),
    ):
        with atomic_text_file(folder / name) as file:
            file.write(content)
    return report
