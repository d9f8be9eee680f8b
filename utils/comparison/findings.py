"""What a comparison found: each pair in words, a summary of all, and what makes it doubtful.

Before: `document.py`. After: `report.py` puts the findings at the head of the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from backend.words import count
from utils.comparison.measured import Document
from utils.comparison.statistics import FASTER, NO_DIFFERENCE, SLOWER, TOO_FEW
from utils.comparison.words import listed, number, number_range, trainer_name

BACKENDS, OPTIONS, TRAINERS = "backends", "options", "trainers"
REFUSED = "refused, the work is not equal"
UNDER_LOAD = "taken under load"


class Finding(NamedTuple):
    """The comparison of two cells' times.

    Attributes:
        kind: BACKENDS, OPTIONS or TRAINERS.
        subject, reference: what is compared with what, whatever the batch size.
        label: which of its kind it is: "batch 16, fused"; of an option "fused, batch 16".
        names: "candidate against reference", by the names of the cells.
        side: the candidate's backend or trainer.
        ratio: median, min, max and count of the candidate's time by the reference's; None if the
            work is not equal.
        spread: smallest and largest ratio, and the number of pairs; "" without a ratio.
        verdict: what the ratios say.
        alarms: warnings that must be shown with the ratio.
        details: further facts.
    """

    kind: str
    subject: str
    reference: str
    label: str
    names: str
    side: str
    ratio: Document | None
    spread: str
    verdict: str
    alarms: Sequence[str]
    details: Sequence[str]

    @property
    def is_told(self) -> bool:
        """Whether it is a difference that is not doubtful, or doubtful only because of the load."""
        return self.verdict in (SLOWER, FASTER) and set(self.alarms) <= {UNDER_LOAD}

    @property
    def figure(self) -> str:
        """The median ratio; "" if it must not be read as a result."""
        return number(self.ratio["median"]) if self.ratio and self.verdict != TOO_FEW else ""


def findings(document: Document) -> list[Finding]:
    """Return all pairs in words, in the order of the document."""
    cells = {cell["name"]: cell for cell in document["cells"]}
    return [_finding(pair, cells) for pair in document["pairs"]]


def _finding(pair: Document, cells: Mapping[str, Document]) -> Finding:
    reference, candidate = cells[pair["reference"]], cells[pair["candidate"]]
    label, side, ratio = f"batch {pair['batch']}", candidate["side"], pair["ratio"]
    alarms, details = _remarks(pair, reference, candidate)
    if not pair["checked"]:
        kind, subject = TRAINERS, side
        beside = f"{trainer_name(reference['side'])} {reference['variant']}"
    elif side != reference["side"]:
        kind, subject, beside = BACKENDS, trainer_name(side), trainer_name(reference["side"])
        label += f", {candidate['variant']}"
    else:
        kind, beside = OPTIONS, reference["variant"]
        subject = f"{trainer_name(side)} with {candidate['variant']}"
        label = f"{candidate['variant']}, {label}"
    return Finding(
        kind,
        subject,
        beside,
        label,
        f"{pair['candidate']} against {pair['reference']}",
        side,
        ratio,
        ratio_range(pair) if ratio else "",
        pair["verdict"] if ratio else REFUSED,
        alarms,
        details,
    )


def _remarks(
    pair: Document, reference: Document, candidate: Document
) -> tuple[list[str], list[str]]:
    """Return what makes a pair doubtful, and what else is known of it."""
    alarms, details, gap = [], [], pair["losses"]
    if not pair["checked"]:
        alarms.append("not checked for equal work")
    if pair["unequal"]:
        alarms.append("UNEQUAL WORK")
    elif pair["by_design"]:
        details.append(f"differs on purpose in {', '.join(pair['by_design'])}")
    if gap and gap["worst"] is None:
        alarms.append(f"a loss of batch {gap['worst_batch']} is not finite")
    elif gap:
        (alarms if gap["diverged"] else details).append(
            f"losses at most {gap['worst']:.1e} apart in the first {_batches(gap)} "
            f"(accepted: {gap['tolerance']:g})"
        )
    if reference["under_load"] or candidate["under_load"]:
        alarms.append(UNDER_LOAD)
    if pair["means"]:
        details.append(f"by other means: {'; '.join(pair['means'])}")
    return alarms, details


def ratio_range(pair: Document) -> str:
    """Return the smallest and largest ratio, and the number and kind of pairs."""
    ratio = pair["ratio"]
    of = "epochs" if pair["measure"] == "epoch" else "whole processes"
    pairs = f"{count(ratio['count'], 'pair')} of {of}"
    return f"{number(ratio['min'])} to {number(ratio['max'])} in {pairs}"


def summary(document: Document) -> list[str]:
    """Return what was found and how sure it is, a sentence each; [] before a pair ran.

    Pairs of unequal work, or whose losses diverge, are no finding: that is said first.
    """
    pairs, said = document["pairs"], []
    if doubtful := sum(map(_is_doubtful, pairs)):
        of = f"{doubtful} of {count(len(pairs), 'comparison')}"
        said.append(f"This is no result for {of}: the work or the losses differ.")
    subjects: dict[tuple[str, str], list[Finding]] = {}
    for finding, pair in zip(findings(document), pairs, strict=True):
        if not _is_doubtful(pair):
            subjects.setdefault((finding.subject, finding.reference), []).append(finding)
    said += _sentences(subjects)
    return [*said, _certainty(document)] if subjects else said


def _is_doubtful(pair: Document) -> bool:
    return bool(pair["unequal"] or (pair["losses"] or {}).get("diverged"))


def _sentences(subjects: Mapping[tuple[str, str], Sequence[Finding]]) -> list[str]:
    """Return one sentence per subject; subjects with the same short verdict share one."""
    said: list[str] = []
    alike: dict[tuple[str, str], list[str]] = {}
    for (subject, reference), found in subjects.items():
        verdicts = {finding.verdict for finding in found}
        if verdicts in ({NO_DIFFERENCE}, {TOO_FEW}):
            alike.setdefault((verdicts.pop(), reference), []).append(subject)
        else:
            said.append(_sentence(subject, reference, found))
    short = (
        f"{listed(names)} compared with {of}: {verdict}." for (verdict, of), names in alike.items()
    )
    return [*said, *short]


def _sentence(subject: str, reference: str, found: Sequence[Finding]) -> str:
    verdicts = [finding.verdict for finding in found]
    if set(verdicts) in ({SLOWER}, {FASTER}):
        medians = [finding.ratio["median"] for finding in found if finding.ratio]
        both = "both" if len(found) == 2 else f"all {len(found)}"
        all_of = f", in {both} comparisons" if len(found) > 1 else ""
        took = f"{subject} took {number_range(medians)} times as long as {reference}"
        return f"{took}{all_of}."
    counted = (f"{verdict} in {verdicts.count(verdict)}" for verdict in dict.fromkeys(verdicts))
    listed_verdicts = ", ".join(counted)
    return f"{subject} compared with {reference}, {len(found)} comparisons: {listed_verdicts}."


def _certainty(document: Document) -> str:
    """Return how certain the figures are, and why."""
    rounds = count(document["settings"]["rounds"], "round")
    counts = [pair["ratio"]["count"] for pair in document["pairs"] if pair["ratio"]]
    most, least = max(counts), min(counts)
    each = count(most, "pair") if least == most else f"{least} to {most} pairs"
    return f"Each figure is the median of {each} in {rounds}. {_load(document)}"


def _load(document: Document) -> str:
    """Return how busy other processes kept the machine."""
    runs = [run for cell in document["cells"] for run in cell["runs"] if not run["failure"]]
    others = [run.get("load", {}).get("others") for run in runs]
    known = [cores for cores in others if cores is not None]
    busy = sum(len(cell["under_load"]) for cell in document["cells"])
    cores = count(document["machine"]["cores"], "core")
    if busy:
        return f"They are uncertain: the machine was busy in {busy} of {count(len(runs), 'run')}."
    if len(known) < len(runs):
        return "How busy the machine was is not known."
    return f"Other processes took at most {max(known):.1f} of {cores}."


def warnings(document: Document) -> Iterator[str]:
    """Yield the warnings that a reader must see before any figure, worst first."""
    for pair in document["pairs"]:
        gap, names = pair["losses"], f"{pair['candidate']} against {pair['reference']}"
        if gap and gap["worst"] is None:
            yield f"LOSSES DIVERGE: {names}: a loss of batch {gap['worst_batch']} is not finite"
        elif gap and gap["diverged"]:
            yield (
                f"LOSSES DIVERGE: {pair['candidate']} is {gap['worst']:.1%} away from "
                f"{pair['reference']} in batch {gap['worst_batch']}; "
                f"up to {gap['tolerance']:.0%} is accepted in the first {_batches(gap)}"
            )
    for pair in document["pairs"]:
        if pair["unequal"]:
            names = f"{pair['candidate']} against {pair['reference']}"
            yield f"UNEQUAL WORK: {names}: {'; '.join(pair['unequal'])}"
    if any(cell["under_load"] for cell in document["cells"]):
        yield _under_load(document)
    for cell in document["cells"]:
        if cell["failures"]:
            yield f"FAILED: {cell['name']}: {cell['failures'][0]}"
    if document["status"] != "complete":
        yield f"This comparison is {document['status']}: figures are missing."


def _under_load(document: Document) -> str:
    """Return one line for all runs under load: one per run would hide the other warnings."""
    cells = [cell for cell in document["cells"] if cell["under_load"]]
    loaded = [(run["others"], cell["name"], run["round"]) for cell in cells
              for run in cell["under_load"]]  # fmt: skip
    others, name, turn = max(loaded)
    more = f", and in {count(len(loaded) - 1, 'more run')}" if len(loaded) > 1 else ""
    return (
        f"UNDER LOAD: {name}: other processes took {others:.1f} of "
        f"{count(document['machine']['cores'], 'core')} in round {turn}{more}; run it again when "
        "the machine is idle"
    )


def _batches(gap: Document) -> str:
    return count(gap["batches"], "batch", "batches")
