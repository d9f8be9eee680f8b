"""`python -m duet anchors`: print anchors for a dataset, as a model YAML has them."""

from __future__ import annotations

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import argparse

from duet.utils.cli.flags import from_one, new_parser, whole_from
from duet.utils.cli.hyperparameters import MAX_ANCHORS, read_hyperparameters
from duet.utils.cli.recipe_config import RecipeConfig, require_seed
from duet.utils.cli.run_config import require_part
from duet.utils.data.anchors.fit import fit_anchors, label_sizes, measure_fit
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import UserError
from duet.utils.image_limits import MAX_PIXELS
from duet.utils.processes.command import run_command
from duet.utils.text import count, say

LEVELS = 5  # of any model


def main() -> None:
    flags = parse_flags()
    dataset = load_dataset(flags.data, splits=("train",), train_part=flags.split)
    samples = load_split(dataset, "train", max_pixels=flags.max_pixels)
    sizes_wh = label_sizes(samples, flags.img)
    threshold = read_hyperparameters(flags.hyp).anchor_t
    anchors = fit_anchors(sizes_wh, flags.anchors, threshold, flags.seed)
    fit = measure_fit(sizes_wh, anchors, threshold)
    say(
        f"# {count(len(sizes_wh), 'label')} at {flags.img} px: best possible recall "
        f"{fit.best_possible_recall:.4f}, {fit.anchors_per_target:.2f} anchors per target, "
        f"fitness {fit.fitness:.4f}",
        "anchors:",
        *(f"  - {level}" for level in anchors.reshape(flags.levels, -1).tolist()),
    )


def parse_flags() -> argparse.Namespace:
    """Parse the command line; exit with code 2, or raise UserError, for a wrong value."""
    parser = new_parser("python -m duet anchors", "Anchors that fit a dataset's labels.")
    parser.add_argument("--data", required=True, metavar="D", help="dataset YAML")
    parser.add_argument("--img", type=from_one, default=640, metavar="PX", help="long side")
    parser.add_argument("--max-pixels", type=from_one, default=MAX_PIXELS, metavar="N",
        help="leave out images with more pixels than this")  # fmt: skip
    parser.add_argument("--split", type=float, metavar="F",
        help="fraction of the images for training, as for train.py")  # fmt: skip
    parser.add_argument("--anchors", type=from_one, default=9, metavar="N",
        help="number of anchors, over all levels")  # fmt: skip
    parser.add_argument("--levels", type=from_one, default=3, metavar="N",
        help="number of levels of the model")  # fmt: skip
    parser.add_argument("--hyp", default=RecipeConfig.hyp, help="YAML with anchor_t")
    parser.add_argument("--seed", type=int, default=0, help="seed of the search")
    flags = parser.parse_args()
    require_part("--split", flags.split)
    require_seed("--seed", flags.seed)
    whole_from(1, LEVELS * MAX_ANCHORS)("--anchors", flags.anchors)
    if flags.anchors % flags.levels:
        raise UserError(
            f"--anchors {flags.anchors} cannot be divided by --levels {flags.levels}; every level "
            "needs the same number of anchors"
        )
    return flags


if __name__ == "__main__":
    run_command(main)
