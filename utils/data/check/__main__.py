"""`duet check`: what is wrong with a dataset, as a summary and as a page."""

import argparse
import dataclasses
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from duet.utils.cli.flags import from_one, new_parser
from duet.utils.cli.run_config import part_of, require_part
from duet.utils.data.check.checking import Check, check_dataset
from duet.utils.data.check.corrected_copy import refuse_place, write_corrected
from duet.utils.data.check.report import check_page, summary_lines, write_findings
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.dataset_yaml import SPLITS, DatasetSpec
from duet.utils.errors import DatasetError, UserError
from duet.utils.files.atomic import atomic_text_file
from duet.utils.files.run_folder import create_run_folder
from duet.utils.image_limits import MAX_PIXELS
from duet.utils.processes.command import run_command
from duet.utils.processes.exit_status import EXIT_FAILED
from duet.utils.text import say

FOLDER = Path("runs/check")

log = logging.getLogger("check")


def main() -> None:
    if run().has_problems:
        sys.exit(EXIT_FAILED)


def run(arguments: Sequence[str] | None = None) -> Check:
    """Check by flags, by default sys.argv's; show, write and return the findings."""
    flags = parse_flags(arguments)
    dataset = load(flags)
    if flags.fix:
        refuse_place(dataset, flags.fix, flags.out or FOLDER)
    folder = flags.out or create_run_folder(FOLDER, dataset.name, exist_ok=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = f"--out {folder} cannot be created: {error.strerror}; choose another folder"
        raise UserError(text) from error
    check = check_dataset(dataset, flags.max_pixels)
    with atomic_text_file(folder / "check.html") as file:
        file.write(check_page(check, flags.img))
    write_findings(folder / "findings.csv", check.findings)
    say(*summary_lines(check, flags.img))
    say("", f"page: {folder / 'check.html'}, all findings: {folder / 'findings.csv'}")
    if flags.fix:
        limit = "" if flags.max_pixels == MAX_PIXELS else f" --max-pixels {flags.max_pixels}"
        *lines, train = write_corrected(check, flags.fix)
        say(*lines, f"{train}{limit}")
    return check


def parse_flags(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; exit with code 2, or raise UserError, for a wrong value."""
    parser = new_parser(
        "duet check",
        "What is wrong with a dataset: a summary, and a page with crops. Exit code 0: nothing is "
        "to be corrected; 1: something is; 2: a wrong call.",
    )
    add = parser.add_argument
    add("--data", required=True, metavar="D", help="dataset YAML, folder or annotation file")
    add("--img", type=from_one, default=640, metavar="PX",
        help="long side of the images, as for train.py")  # fmt: skip
    add("--max-pixels", type=from_one, default=MAX_PIXELS, metavar="N",
        help="skip images with more pixels than this")  # fmt: skip
    add("--split", type=part_of, metavar="F",
        help="fraction of the images for training, as for train.py")  # fmt: skip
    add("--out", type=Path, metavar="FOLDER",
        help=f"folder of the page; default: a new one in {FOLDER}")  # fmt: skip
    add("--fix", type=Path, metavar="FOLDER", help="write corrected labels to this new folder")
    flags = parser.parse_args(arguments)
    require_part("--split", flags.split)
    return flags


def load(flags: argparse.Namespace) -> DatasetSpec:
    """Return the dataset with all splits that it names; those that it lacks need not be there."""
    named = load_dataset(flags.data, splits=(), train_part=flags.split)
    splits = [split for split in SPLITS if split == "train" or getattr(named, split)]
    try:
        return load_dataset(flags.data, splits=splits, train_part=flags.split)
    except DatasetError as error:
        if "test" not in splits:
            raise
        splits.remove("test")
        dataset = load_dataset(flags.data, splits=splits, train_part=flags.split)
        log.warning("skipping the split test, which training does not need: %s", error)
        return dataclasses.replace(dataset, test=())


if __name__ == "__main__":
    run_command(main)
