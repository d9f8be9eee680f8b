"""Cross-validation: train once per fold of a dataset; print the mean and deviation of the metrics.

duet folds --folds 5 --data mydata --weights yolov5n.pt --epochs 50
"""

import statistics
from collections.abc import Mapping, Sequence

from duet.commands.train import main as train
from duet.runs import call
from duet.utils.cli.flags import new_parser, whole_from
from duet.utils.cli.run_config import MOST_FOLDS
from duet.utils.cli.train_config import read_train_flags
from duet.utils.errors import UserError
from duet.utils.processes.command import run_command
from duet.utils.project import command_line
from duet.utils.text import say

REFUSED = ("train_part", "resume", "evolve", "nproc")  # flags of train.py that folds set or exclude


def main() -> None:
    parser = new_parser("duet folds", "Train once per fold; all other flags are those of train.py.")
    parser.add_argument("--folds", type=int, default=5, metavar="N", help="number of folds")
    parser.add_argument("--print", action="store_true", dest="only_prints",
        help="print the commands, to run them elsewhere or at the same time")  # fmt: skip
    flags, words = parser.parse_known_args()
    whole_from(2, MOST_FOLDS)("--folds", flags.folds)
    values, given = read_train_flags(words, "duet folds")
    if refused := [name for name in REFUSED if name in given]:
        names = {"train_part": "split"}
        raise UserError(
            f"--{names.get(refused[0], refused[0])} does not go with folds; leave it out"
        )
    if "," in values["device"] and not flags.only_prints:
        raise UserError(
            f"--device {values['device']}: folds are trained on one device, one after another; "
            "name one, or start the commands of --print yourself"
        )
    commands = [
        [*words, f"--split={fold}/{flags.folds}", f"--name={values['name']}-fold{fold}"]
        for fold in range(1, flags.folds + 1)
    ]
    if flags.only_prints:
        return say(*(command_line("train", *own) for own in commands))
    say(*table([trained(own) for own in commands]))


def trained(words: Sequence[str]) -> Mapping[str, float]:
    metrics: Mapping[str, float] = call("train", lambda _: train(words), {}).metrics
    return metrics


def table(folds: Sequence[Mapping[str, float]]) -> list[str]:
    """Return a line per metric: mean, standard deviation, and the value of each fold."""
    if not all(folds):
        return ["a fold ended without metrics: its log says why"]
    lines = [f"{'':<22}  mean  deviation  folds"]
    for name in folds[0]:
        values = [metrics[name] for metrics in folds]
        each = " ".join(f"{value:.3f}" for value in values)
        spread = statistics.stdev(values)
        lines.append(f"{name:<22} {statistics.mean(values):.3f}      {spread:.3f}  {each}")
    return lines


if __name__ == "__main__":
    run_command(main)
