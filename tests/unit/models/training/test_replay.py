"""What --replay says of flags that are not those of the run."""

import re
from types import SimpleNamespace

import pytest

from models.training.replay import differences
from utils.cli.document import as_document, run_settings
from utils.cli.hyperparameters import read_hyperparameters
from utils.cli.train_config import parse_train_flags


def told(run_flags, flags):
    run, config = parse_train_flags(run_flags), parse_train_flags([*flags, "--replay", "1:1"])
    hyp = as_document(read_hyperparameters(run.hyp))
    header = SimpleNamespace(settings=run_settings(run), hyperparameters=hyp, epoch=1)
    return list(differences(config, SimpleNamespace(header=header)))


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--mask-ratio", "2"], "mask_ratio is 4, but the weights come from a run with 2"),
        (["--no-overlap"], "no_overlap is False, but the weights come from a run with True"),
        (["--dropout", "0.5"], "dropout is 0.0, but the weights come from a run with 0.5"),
        (["--label-smoothing", "0.2"], "label_smoothing is 0.0, but .* with 0.2"),
        (["--seed", "3"], "seed is 0, but the weights come from a run with 3"),
    ],
)
def test_a_flag_that_the_batch_or_its_cost_depends_on_is_told(flags, line):
    weights = ["--weights", "x.safetensors"]
    (found,) = told([*weights, *flags], weights)
    assert re.fullmatch(line, found)
    assert told([*weights, *flags], [*weights, *flags]) == []
