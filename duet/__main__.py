"""The command `duet`, or `python -m duet`: it runs the script or module that its first word names.

duet train --data mydata.yaml --weights yolov5n.pt --epochs 100
"""

from __future__ import annotations

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import difflib
import runpy
import sys

from duet.utils.errors import UserError
from duet.utils.processes.command import run_command
from duet.utils.text import say

# By the word after `duet`: the module that runs, and a line of the help.
COMMANDS = {
    "train": ("duet.commands.train", "train a model"),
    "val": ("duet.commands.val", "validate a model: COCO's mAP, per class and over all"),
    "detect": ("duet.commands.detect", "find objects in images, videos and streams"),
    "export": ("duet.commands.export", "write files for other runtimes, each verified"),
    "compare": ("duet.commands.compare", "time OneFlow and PyTorch on equal work"),
    "check": ("duet.utils.data.check", "find what is wrong with a dataset"),
    "audit": ("duet.utils.data.audit", "find doubtful labels with a trained model"),
    "records": ("duet.utils.data.records", "pack a dataset into record files, and unpack it"),
    "fetch": ("duet.utils.data.fetch", "download public datasets and weights"),
    "serve": ("duet.utils.serve", "answer images over HTTP"),
    "weights": ("duet.utils.weights", "show or convert weights files"),
    "doctor": ("duet.models.training.doctor", "measure what slows a training down"),
}


def main() -> None:
    """Run the command that sys.argv names; print the list of all without one."""
    start_command()
    name, *words = sys.argv[1:] or ["--help"]
    if name not in COMMANDS:
        return run_command(lambda: answer(name))
    sys.argv = [f"duet {name}", *words]  # how to start it again: utils/processes/start.py
    module, _ = COMMANDS[name]
    runpy.run_module(module, run_name="__main__")


def answer(name: str) -> None:
    """Print the help, if that is asked for; UserError for what is no command."""
    if name in ("-h", "--help"):
        return say(*usage())
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"{name} is no command of duet{hint}\n`duet --help` lists them")


def usage() -> list[str]:
    """Return the lines of the help, which fit on one screen."""
    rows = [f"  {name:<9}{text}" for name, (_, text) in COMMANDS.items()]
    return ["usage: duet COMMAND ...", "", *rows, "", "`duet COMMAND --help` lists its flags."]


if __name__ == "__main__":
    main()
