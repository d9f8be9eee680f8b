"""The command `duet`, or `python -m duet`: dispatches to the script or module of a subcommand.

duet train --data mydata.yaml --weights yolov5n.pt --epochs 100
"""

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before imports that may be slow or missing

import difflib
import runpy
import sys

from duet import __version__
from duet.utils.errors import UserError
from duet.utils.processes.command import run_command
from duet.utils.text import say

# Module and help line by subcommand.
COMMANDS = {
    "train": ("duet.commands.train", "train a model"),
    "folds": ("duet.folds", "train once per fold; mean and deviation of the metrics"),
    "val": ("duet.commands.val", "validate a model: COCO's mAP, per class and over all"),
    "detect": ("duet.commands.detect", "find objects in images, videos and streams"),
    "export": ("duet.commands.export", "write files for other runtimes, each verified"),
    "compare": ("duet.commands.compare", "time OneFlow and PyTorch on equal work"),
    "compare-runs": ("duet.compare_runs", "say whether two val.py runs differ by more than noise"),
    "check": ("duet.utils.data.check", "find what is wrong with a dataset"),
    "audit": ("duet.models.evaluation.audit", "find doubtful labels with a trained model"),
    "records": ("duet.utils.data.records", "pack a dataset into record files, and unpack it"),
    "fetch": ("duet.utils.data.fetch", "download public datasets and weights"),
    "serve": ("duet.utils.serve", "serve detections over HTTP"),
    "weights": ("duet.utils.weights", "show or convert weights files"),
    "doctor": (
        "duet.models.training.doctor",
        "describe the system, or find a training's bottleneck",
    ),
}
# What other programs call them.
ELSEWHERE = {
    "predict": "detect", "track": "detect --track", "test": "val", "validate": "val",
    "segment": "train --task segment", "classify": "train --task classify",
    "benchmark": "export --data", "tune": "train --evolve",
}  # fmt: skip


def main() -> None:
    """Run the command named in sys.argv; without one, list all commands."""
    start_command()
    name, *words = sys.argv[1:] or ["--help"]
    if name not in COMMANDS:
        return run_command(lambda: answer(name))
    if name == "detect" and words[:1] and words[0] in {**COMMANDS, **ELSEWHERE}:
        return run_command(lambda: answer(f"detect {words[0]}", words[0]))
    sys.argv = [f"duet {name}", *words]  # for messages with commands: utils/processes/start.py
    module, _ = COMMANDS[name]
    runpy.run_module(module, run_name="__main__")


def answer(name: str, meant: str = "") -> None:
    """Print the help or the version if requested; UserError for an unknown command.

    meant: the command that was probably wanted, if known.
    """
    if name in ("-h", "--help"):
        return say(*usage())
    if name == "--version":
        return say(f"duet {__version__}")
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    meant = ELSEWHERE.get(meant or name, meant) or (near[0] if near else "")
    hint = f"; did you mean {meant}?" if meant else ""
    raise UserError(f"unknown command {name}{hint}\n`duet --help` lists all commands")


def usage() -> list[str]:
    rows = [f"  {name:<13}{text}" for name, (_, text) in COMMANDS.items()]
    return ["usage: duet COMMAND ...", "", *rows, "", "`duet COMMAND --help` lists its flags."]


if __name__ == "__main__":
    main()
