"""Do both backends still compute the same? One table, exit code 0 for yes and 1 for no.

    .venv/torch/bin/python -m tests.parity --steps 20

Runs PyTorch and OneFlow at the same time, each in its own environment, on the same weights and
batches; `table.py` says what is compared, and why each tolerance is what it is.
"""

from __future__ import annotations

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from duet.utils.cli.flags import new_parser, whole_from
from duet.utils.data.shapes.dataset import ShapesConfig, draw_dataset
from duet.utils.errors import UserError
from duet.utils.files.model_yamls import read_model
from duet.utils.processes.start import EXIT_USER_ERROR
from tests.environments import BACKENDS
from tests.parity.both import compare_sides, run_sides
from tests.parity.table import Settings, formatted

STRIDE = 32  # of the public models


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every row agrees, 1 when one does not, 2 when a side could not be run."""
    parser = new_parser("python -m tests.parity", "Compare both backends number by number.")
    add = parser.add_argument
    add("--steps", type=int, default=20, help="optimizer steps of SGD, Adam and AdamW each")
    add("--cfg", default="models/yolov5n.yaml", help="model YAML")
    add("--img", dest="image_size", type=int, default=64, help="side of the images")
    add("--batch", dest="batch_size", type=int, default=16, help="images a batch")
    flags = parser.parse_args(arguments)
    try:
        whole_from(1)("--steps", flags.steps)
        whole_from(1)("--batch", flags.batch_size)
        if flags.image_size % STRIDE:
            raise UserError(f"--img {flags.image_size}: a multiple of {STRIDE} is needed")
        read_model(flags.cfg)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shapes = ShapesConfig(num_train=16, num_val=1, image_side=flags.image_size)
            data = draw_dataset(folder / "shapes", shapes)
            run_sides(Settings(data=str(data), **vars(flags)), folder, *BACKENDS)
            lines = compare_sides(folder)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    print(*formatted(lines), sep="\n")
    return 0 if all(line.agrees for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
