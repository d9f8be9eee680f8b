"""`python -m utils.data.check`: what is wrong with a dataset, as a summary and as a page."""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import argparse
import dataclasses
import logging
import shlex
import sys
from pathlib import Path
from tempfile import TemporaryFile

from utils.cli.flags import from_one, new_parser
from utils.cli.hyperparameters import read_hyperparameters
from utils.cli.recipe_config import RecipeConfig
from utils.cli.run_config import require_part
from utils.data.check.advice import first_steps
from utils.data.check.anchors import read_anchors
from utils.data.check.check_page import check_page
from utils.data.check.checking import Check, check_dataset
from utils.data.check.corrected_copy import refuse_place, write_corrected
from utils.data.check.figures import Figures, measure
from utils.data.check.summary import summary_lines, write_findings
from utils.data.image.limits import MAX_PIXELS
from utils.data.sources.dataset import load_dataset
from utils.data.sources.dataset_yaml import SPLITS, DatasetSpec
from utils.errors import DatasetError, UserError
from utils.files.atomic import atomic_text_file
from utils.processes.command import run_command
from utils.processes.exit_status import EXIT_FAILED
from utils.screen.text import say
from utils.state.folder import create_run_folder

FOLDER = Path("runs/check")

log = logging.getLogger("check")


def main() -> None:
    flags = parse_flags()
    if flags.fix:
        refuse_nesting(flags.fix, flags.out or FOLDER)
    if flags.out:
        require_writable(flags.out)
    anchors_wh, dataset = read_anchors(flags.cfg, flags.weights), load(flags)
    if flags.fix:
        refuse_place(dataset, flags.fix)
    folder = flags.out or create_run_folder(FOLDER, dataset.name, exist_ok=False)
    check = check_dataset(dataset, flags.max_pixels)
    figures = measure(check, flags.img, anchors_wh, read_hyperparameters(RecipeConfig.hyp).anchor_t)
    report(flags, check, figures, folder)
    if flags.fix:
        say(*write_corrected(check, flags.fix))
    if check.has_problems:
        sys.exit(EXIT_FAILED)


def parse_flags() -> argparse.Namespace:
    """Parse the command line; exit with code 2, or raise UserError, for a wrong value."""
    parser = new_parser(
        "python -m utils.data.check",
        "What is wrong with a dataset: a summary, and a page with crops. Exit code 0: nothing is "
        "to be corrected; 1: something is; 2: a wrong call.",
    )
    add = parser.add_argument
    add("--data", required=True, metavar="D", help="dataset YAML, folder or annotation file")
    add(
        "--img",
        type=from_one,
        default=640,
        metavar="PX",
        help="long side of the images, as for train.py",
    )
    add("--max-pixels", type=from_one, default=MAX_PIXELS, metavar="N",
        help="leave out images with more pixels than this")  # fmt: skip
    add("--split", type=float, metavar="F",
        help="fraction of the images for training, as for train.py")  # fmt: skip
    add("--cfg", default="", metavar="F", help="model YAML with anchors; default yolov5s")
    add("--weights", default="", metavar="F", help="weights with anchors, without --cfg")
    add("--out", type=Path, metavar="FOLDER",
        help=f"folder of the page; default: a new one in {FOLDER}")  # fmt: skip
    add("--fix", type=Path, metavar="FOLDER", help="a new folder for corrected labels")
    flags = parser.parse_args()
    require_part("--split", flags.split)
    return flags


def refuse_nesting(fix: Path, out: Path) -> None:
    """Raise UserError for a corrected copy in the page's folder, or the other way round."""
    copy, page = fix.resolve(), out.resolve()
    if copy.is_relative_to(page) or page.is_relative_to(copy):
        raise UserError(
            f"--fix {fix} and the page's folder {out}: one is inside the other; name two separate "
            "folders"
        )


def require_writable(folder: Path) -> None:
    """Make a folder for the page if there is none; raise UserError if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(
            f"--out {folder} cannot be written: {error.strerror}; name a folder elsewhere"
        ) from error


def load(flags: argparse.Namespace) -> DatasetSpec:
    """Return the dataset with all splits that it names; those that it lacks need not be there."""
    named = load_dataset(flags.data, splits=(), train_part=flags.split)
    splits = [split for split in SPLITS if getattr(named, split)]
    if "train" not in splits:
        raise DatasetError(f"--data {flags.data}: it has no images for training")
    try:
        return load_dataset(flags.data, splits=splits, train_part=flags.split)
    except DatasetError as error:
        if "test" not in splits:
            raise
        splits.remove("test")
        dataset = load_dataset(flags.data, splits=splits, train_part=flags.split)
        log.warning("split test is left out, because training does not need it: %s", error)
        return dataclasses.replace(dataset, test=())


def report(flags: argparse.Namespace, check: Check, figures: Figures, folder: Path) -> None:
    """Print the summary and write the page and the list of findings."""
    split = () if flags.split is None else ("--split", str(flags.split))
    images = shlex.join(["--data", str(flags.data), *split, *check.limit])
    steps = first_steps(check, figures, images)
    with atomic_text_file(folder / "check.html") as file:
        file.write(check_page(check, figures, steps))
    write_findings(folder / "findings.csv", check.findings)
    say(*summary_lines(check, figures, steps))
    say("", f"page: {folder / 'check.html'}, all findings: {folder / 'findings.csv'}")


if __name__ == "__main__":
    run_command(main)
