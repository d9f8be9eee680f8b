"""Hyper-parameter YAMLs: what reads, and what is refused how."""

import dataclasses
import datetime
import json
from pathlib import Path

import pytest
import yaml

from duet.utils.cli.hyperparameters import (
    DEFAULT_HYPERPARAMETERS,
    Hyperparameters,
    override_word,
    read_hyperparameters,
)
from duet.utils.errors import UserError
from tests.environments import shared_path


def test_default_hyperparameters_are_public():
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    assert (hyp.lr0, hyp.lrf, hyp.momentum, hyp.weight_decay) == (0.01, 0.01, 0.937, 0.0005)
    assert (hyp.box, hyp.cls, hyp.obj, hyp.anchor_t) == (0.05, 0.5, 1.0, 4.0)
    assert (hyp.hsv_h, hyp.hsv_s, hyp.hsv_v) == (0.015, 0.7, 0.4)
    assert (hyp.translate, hyp.scale, hyp.fliplr, hyp.mosaic) == (0.1, 0.5, 0.5, 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr0": "fast"}, "lr0: 'fast' is not a number"),
        ({"lr0": datetime.date(2024, 1, 1)}, "lr0: '2024-01-01', read as 'timestamp'; "),
        ({"lr0": "x" * 10_000}, r"lr0: 'x{1,200}\.\.\.x{1,200}' is not a number"),
        ({f"a{i}": 0 for i in range(60_000)}, r"unknown \['a0', .{,100}\.\.\.\]; see "),
        ({"anchor_t": 1.0}, "anchor_t: 1.0"),
        ({"mixup": 1.1}, "mixup: 1.1; accepted: a number from 0 to 1"),
        ({"anchors": 0.3}, "anchors: 0.3.* from 1 to 32"),
        ({"anchors": 1e9}, "anchors: .* from 1 to 32"),
        ({"nbs": 0}, "nbs: 0; accepted: at least 1 image per optimizer step"),
        ({"ema_share": 1.5}, "ema_share: 1.5; accepted: at most 1"),
        ({"cls_weights": "rare"}, "cls_weights: 'rare'; accepted: auto, or a list of numbers"),
        ({"cls_weights": [1, 0]}, r"cls_weights: \[1, 0\]; accepted: auto, or a list of numbers"),
        ({"learning_rate": 0.1}, r"unknown \['learning_rate'\]"),
        ({"momentum": None}, r"yaml: missing \['momentum'\]; see "),  # None: taken out
    ],
)
def test_wrong_hyperparameters_are_refused_by_name(tmp_path, change, message):
    document = {**yaml.safe_load(DEFAULT_HYPERPARAMETERS.read_text()), **change}
    document = {name: value for name, value in document.items() if value is not None}
    path = tmp_path / "hyp.yaml"
    path.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper))
    with pytest.raises(UserError, match=message):
        read_hyperparameters(path)


def test_an_absent_file_is_answered_with_the_names_that_are_accepted():
    with pytest.raises(UserError, match="--hyp high: No such file or directory; accepted: ") as end:
        read_hyperparameters("high")
    names = str(end.value).rpartition("one of ")[2].split(", ")
    assert {"scratch-high", "small", "VOC"} < set(names)
    assert all(read_hyperparameters(name) for name in names)


@pytest.mark.parametrize("path", sorted(Path("data/hyps").glob("*.yaml")), ids=lambda p: p.name)
def test_every_shipped_hyperparameter_file_reads(path):
    assert isinstance(read_hyperparameters(path), Hyperparameters)


def test_shipped_file_is_found_by_short_name():
    small = read_hyperparameters("small")
    assert small == read_hyperparameters("data/hyps/hyp.small.yaml")
    assert small != read_hyperparameters(DEFAULT_HYPERPARAMETERS)


def test_overrides_replace_values_of_the_file():
    given = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    changed = read_hyperparameters(DEFAULT_HYPERPARAMETERS, ("lr0=0.2", "mosaic=5e-1"))
    assert changed == dataclasses.replace(given, lr0=0.2, mosaic=0.5)


@pytest.mark.parametrize("weights", ["auto", (), (1.0, 2.5)])
def test_hyperparameters_survive_conversion_to_words(weights):
    given = read_hyperparameters("small")
    changed = dataclasses.replace(given, cls_weights=weights, lr0=1 / 3)
    words = [override_word(*pair) for pair in dataclasses.asdict(changed).items()]
    assert read_hyperparameters(DEFAULT_HYPERPARAMETERS, words) == changed


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "lr=0.1",
            "--override 'lr=0.1'; accepted: HYPERPARAMETER=VALUE; did you mean lrf or lr0\\?",
        ),
        ("momentum", "--override momentum: no value; write momentum=VALUE"),
        ("cls_weights=rare", "--override 'cls_weights=rare': 'rare' is not a number"),
        ("lr0=fast", "--override 'lr0=fast': 'fast' is not a number"),
        ("lr0=nan", "--override lr0: nan; accepted: a finite number"),
    ],
)
def test_wrong_override_is_refused_by_name(word, message):
    with pytest.raises(UserError, match=message):
        read_hyperparameters(DEFAULT_HYPERPARAMETERS, (word,))


def public_files() -> dict[str, dict[str, float]]:
    """Return the numbers of the public hyper-parameter files, by name."""
    return json.loads(shared_path("golden/recipe/info.json").read_text())["hyp"]


def test_public_hyperparameter_files_ship_with_their_values():
    public = public_files()
    assert len(public) == 6
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(Hyperparameters)
        if field.default is not dataclasses.MISSING
    }
    for name, numbers in public.items():
        shipped = yaml.safe_load((DEFAULT_HYPERPARAMETERS.parent / name).read_text())
        assert shipped.items() >= numbers.items(), name
        # What a public file does not name has no effect.
        assert {key: defaults[key] for key in shipped.keys() - numbers.keys()}.items() <= (
            shipped.items()
        ), name
