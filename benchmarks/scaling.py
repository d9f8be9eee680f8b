"""Tables of scaling.md in docs/en and docs/zh: what training on many devices moves and keeps.

    .venv/torch/bin/python -m benchmarks.scaling --measure --backend torch
    .venv/oneflow/bin/python -m benchmarks.scaling --measure --backend oneflow
    .venv/torch/bin/python -m benchmarks.scaling

--measure takes some minutes. It measures the constants of one backend again, with one rank and with
two on this machine, into docs/scaling-constants.json; as root also the bytes that the ranks
exchange. Each form then writes the tables into both pages from the stored constants.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backend.select import FRAMEWORKS
from benchmarks import scaling_tables as tables
from benchmarks.scaling_model import Network
from benchmarks.scaling_words import in_chinese
from utils.cli.flags import new_parser
from utils.files.atomic import atomic_text_file
from utils.files.project import PROJECT
from utils.processes.command import run_command

DOCS = PROJECT / "docs"
PAGE, CHINESE_PAGE = (DOCS / language / "scaling.md" for language in ("en", "zh"))
CONSTANTS = DOCS / "scaling-constants.json"
REFERENCE = "torch"  # whose activations and disk the tables take


def render(document: Mapping[str, Any]) -> dict[str, str]:
    """Return each table by its name in the page."""
    networks = {name: Network(**sizes) for name, sizes in document["networks"].items()}
    constants = document["backends"]
    reference = constants[REFERENCE]
    factor = tables.fitted(networks, reference).activation_factor
    return {
        "bytes": tables.bytes_moved(networks),
        "times": tables.exchange_times(networks),
        "other": tables.other_traffic(networks),
        "memory": tables.memory_of_a_rank(networks, factor),
        "checkpoints": tables.checkpoints(networks, reference),
        "comparison": tables.comparison(networks, constants),
    }


def fill(page: str, texts: Mapping[str, str]) -> str:
    """Return the page with each table between its marks; ValueError if a mark is missing."""
    for name, text in texts.items():
        begin, end = f"<!-- table {name} -->\n", "<!-- end -->"
        before, after = page.split(begin)
        page = f"{before}{begin}\n{text}\n{end}{after.partition(end)[2]}"
    return page


def measure_anew(name: str) -> None:
    """Replace one backend's constants, and the sizes of the models."""
    import backend
    from benchmarks import scaling_measure as measuring
    from benchmarks.side_by_side import machine

    backend.use(name)
    networks = {
        model: measuring.count_network(measuring.model_yaml(model)) for model in measuring.MODELS
    }
    with tempfile.TemporaryDirectory(dir=DOCS.parent) as folder:  # the disk that holds the runs
        found = measuring.measure(Path(folder))
    document = json.loads(CONSTANTS.read_text()) if CONSTANTS.exists() else {"backends": {}}
    document["networks"] = {model: asdict(network) for model, network in networks.items()}
    document["backends"][backend.use()] = {"machine": machine("cpu"), **found}
    write(CONSTANTS, json.dumps(document, indent=1) + "\n")


def write(path: Path, text: str) -> None:
    with atomic_text_file(path) as file:
        file.write(text)


def main() -> None:
    parser = new_parser("python -m benchmarks.scaling", "Write the tables of docs/en/scaling.md.")
    parser.add_argument("--measure", action="store_true", help="measure the constants again")
    parser.add_argument("--backend", choices=FRAMEWORKS, help="whose constants")
    flags = parser.parse_args()
    if flags.measure:
        measure_anew(flags.backend)
    found = render(json.loads(CONSTANTS.read_text()))
    chinese = {name: in_chinese(table) for name, table in found.items()}
    for page, texts in ((PAGE, found), (CHINESE_PAGE, chinese)):
        write(page, fill(page.read_text(encoding="utf-8"), texts))
        print(f"wrote the tables of {page}")


if __name__ == "__main__":
    run_command(main)
