"""The plots of a run on the pages: python -m docs.figures.demo_plots RUN

From a run's folder, as `make demo` leaves it, it writes docs/demo-results.csv (losses, metrics and
rates of results.csv) and, beside it, plots-results.webp, plots-f1.webp and plots-confusion.webp.
Without RUN it draws plots-results.webp anew from the CSV.
"""

from __future__ import annotations

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import csv
import tempfile
from pathlib import Path

import cv2

from duet.utils.cli.flags import new_parser
from duet.utils.files.atomic import atomic_text_file
from duet.utils.processes.command import run_command
from duet.utils.project import PROJECT
from duet.utils.report.plots.results import plot_results
from duet.utils.report.results import Results

DOCS = PROJECT / "docs"
TABLE = DOCS / "demo-results.csv"
PICTURES = {"F1_curve.png": "plots-f1.webp", "confusion_matrix.png": "plots-confusion.webp"}
QUALITY = 80


def draw_results(path: Path) -> None:
    """Draw the results that are stored in docs/demo-results.csv, as a training does."""
    columns, *rows = csv.reader(TABLE.read_text(encoding="utf-8").splitlines())
    plot_results(Results(columns, rows), path)


def copy_results(run: Path) -> None:
    """Store what the plot shows of a run's results.csv."""
    columns, *rows = csv.reader((run / "results.csv").read_text(encoding="utf-8").splitlines())
    shown = sum(not name.startswith("seconds/") for name in columns)  # the times are last
    with atomic_text_file(TABLE) as file:
        file.writelines(",".join(cells[:shown]) + "\n" for cells in (columns, *rows))


def write_webp(path: Path, name: str) -> None:
    """Write a picture into docs/ in the format of the pages."""
    cv2.imwrite(str(DOCS / name), cv2.imread(str(path)), [cv2.IMWRITE_WEBP_QUALITY, QUALITY])


def main() -> None:
    parser = new_parser("python -m docs.figures.demo_plots", "Draw the plots of the pages.")
    parser.add_argument("run", type=Path, nargs="?", help="folder of a run of `make demo`")
    run = parser.parse_args().run
    if run is not None:
        copy_results(run)
        for source, name in PICTURES.items():
            write_webp(run / source, name)
    with tempfile.TemporaryDirectory() as folder:
        draw_results(Path(folder) / "results.png")
        write_webp(Path(folder) / "results.png", "plots-results.webp")


if __name__ == "__main__":
    run_command(main)
