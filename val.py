"""Validate a model on a dataset split: metrics per class and over all.

python val.py --weights runs/train/exp/weights/best.safetensors --data mydata.yaml --img 640
"""

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before imports that may be slow or missing

from collections.abc import Sequence
from typing import Any

from duet import backend
from duet.backend.devices import check_device
from duet.backend.select import choose
from duet.utils.cli.val_config import ValConfig, parse_val_flags
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.processes.command import run_command
from duet.utils.processes.launch import launch
from duet.utils.processes.ranks import joined
from duet.utils.processes.world import World
from duet.utils.weights.load import load_to_detect


def main(arguments: Sequence[str] | None = None) -> Any:
    """Validate with flags, by default from sys.argv; return `Validated` from `validation.py`."""
    config = parse_val_flags(arguments)
    check_device(config.device, choose(config.backend))
    launch(config.backend, config.device, config.nproc, config.check_processes)
    with joined(config.backend, config.device, config.timeout, config.bind_numa) as world:
        return run(config, world)


def run(config: ValConfig, world: World) -> Any:
    """Read data and weights, import the framework, and validate."""
    dataset = load_dataset(
        config.data,
        splits=(config.split,),
        single_class=config.single_class,
        train_part=config.train_part,
    )
    samples = load_split(dataset, config.split, world, config.max_pixels)
    backend.use(config.backend)
    weights = [load_to_detect(path, config.runtime) for path in config.weights]
    from duet.models.evaluation.validation import run_validation

    return run_validation(config, dataset, samples, weights, world)


if __name__ == "__main__":
    run_command(main, several=True)
