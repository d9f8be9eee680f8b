"""A flag declared as a field of a settings dataclass."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import pytest

from duet.utils.cli.flags import (
    GROUPS,
    add_flags,
    as_words,
    check_flags,
    flag,
    flags_of,
    new_parser,
    read_flags,
    whole_from,
)
from duet.utils.cli.train_config import TrainConfig, parse_train_flags, train_parser
from duet.utils.cli.val_config import ValConfig, parse_val_flags
from duet.utils.comparison.settings import compare_parser
from duet.utils.detect.config import DetectConfig
from duet.utils.errors import UserError
from duet.utils.export.config import ExportConfig
from duet.utils.project import PROJECT
from duet.utils.serve.config import ServeConfig


@dataclass(frozen=True)
class Cups:
    number: int = flag("data", "--cups", "--mugs", default=2, check=whole_from(1), help="of tea")
    sugar: bool = flag("model", "--sugar", default=False, help="in each")
    kinds: tuple[str, ...] = flag("data", "--kinds", default=("green",), type=str, nargs="+",
        help="of tea")  # fmt: skip
    milk: str = flag("data", "--milk", default="cow", help="whose")
    strength: float | None = flag("data", "--strength", default=None, type=float, help="of tea")

    def __post_init__(self) -> None:
        check_flags(self)


@dataclass(frozen=True)
class Pots(Cups):
    number: int = 1


def read(settings: type, *arguments: str):
    parser = new_parser("cups", "Make tea.")
    add_flags(parser, settings)
    return read_flags(parser, arguments)


def test_a_command_line_gives_values_and_names_those_that_it_has():
    values, given = read(Cups, "--mugs", "3", "--kinds", "black", "white", "--sugar")
    assert values == {
        "number": 3,
        "sugar": True,
        "kinds": ("black", "white"),
        "milk": "cow",
        "strength": None,
    }
    assert given == {"number": 3, "sugar": True, "kinds": ("black", "white")}


def test_defaults_are_those_of_the_dataclass():
    values, given = read(Cups)
    assert (Cups(**values), given) == (Cups(), {})
    assert {type(value) for value in read(Cups, "--strength", "3")[0].values()} >= {float}


def test_a_subclass_may_change_a_default_and_keeps_the_flag():
    assert read(Pots)[0]["number"] == 1
    assert read(Pots, "--cups", "4")[0]["number"] == 4
    with pytest.raises(UserError, match="--cups 0; accepted: a whole number of at least 1"):
        Pots(0)


def test_help_shows_the_groups_in_their_order(capsys):
    with pytest.raises(SystemExit):
        read(Cups, "--help")
    text = capsys.readouterr().out.partition("Make tea")[2]
    assert text.index("\ndata:\n") < text.index("--cups") < text.index("\nmodel:\n")
    assert text.index("\nmodel:\n") < text.index("--sugar  ")
    assert "detection:" not in text  # empty


def refusal(capsys, *arguments: str) -> list[str]:
    """The lines that a wrong command line is answered with."""
    with pytest.raises(UserError) as caught:
        read(Cups, *arguments)
    assert capsys.readouterr() == ("", "")
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["--cubs", "3"], "unknown flag --cubs for cups; did you mean --cups?"),
        (["-cups", "3"], "unknown flag -cups for cups; did you mean --cups?"),
        (["--sugra=yes"], "unknown flag --sugra for cups; did you mean --sugar?"),
        (["--xyz"], "unknown flag --xyz for cups"),
        (
            ["--milk", "b c.jpg", "d.jpg", "e.jpg"],
            "unexpected argument 'd.jpg'; put its flag before it, and quote a pattern such as "
            "'images/*.jpg'",
        ),
        (["--cups", "two"], "argument --cups/--mugs: 'two'; accepted: a whole number"),
        (["--strength", "x"], "argument --strength: 'x'; accepted: a number"),
        (["--cups"], "argument --cups/--mugs: expected one argument"),
    ],
)
def test_a_wrong_command_line_is_answered_in_two_lines(arguments, answer, capsys):
    assert refusal(capsys, *arguments) == [answer, "`cups --help` lists what is accepted"]


def test_several_unknown_flags_are_answered_together(capsys):
    answers = refusal(capsys, "--cubs", "3", "--sugra")
    assert [line.rpartition(" ")[2] for line in answers[:2]] == ["--cups?", "--sugar?"]


@pytest.mark.parametrize("program", [train_parser("train.py"), compare_parser()])
def test_help_fits_80_columns_and_shows_defaults_as_they_are_written(program, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = program.format_help()
    assert max(map(len, text.splitlines())) <= 80
    assert str(PROJECT) not in text and "('" not in text
    assert "(default: )" not in text and "(default: False)" not in text
    assert "%" not in text


def test_help_shows_the_default_hyperparameters_within_the_project():
    text = " ".join(train_parser("train.py").format_help().split())
    assert "(default: data/hyps/hyp.scratch-low.yaml)" in text
    assert "BatchNorm statistics are still updated (default: 0)" in text


@pytest.mark.parametrize("settings", [TrainConfig, ValConfig])
def test_every_setting_of_a_command_has_a_flag_of_its_own(settings):
    flags = flags_of(settings)
    assert set(flags) == {field.name for field in fields(settings) if field.compare}
    names = [name for found in flags.values() for name in found.names]
    assert len(names) == len(set(names))
    assert {found.group for found in flags.values()} <= set(GROUPS)


@pytest.mark.parametrize(
    "settings", [TrainConfig, ValConfig, DetectConfig, ExportConfig, ServeConfig]
)
def test_every_number_of_a_command_has_bounds(settings):
    for name, found in flags_of(settings).items():
        kind = found.options.get("type")
        if kind in (int, float) and name not in ("classes", "sizes"):  # checked with the model
            for value in (-(10**9), *([math.nan, math.inf] if kind is float else [])):
                with pytest.raises(UserError, match=f"{found.names[0]} .*; accepted: "):
                    found.check(found.names[0], value)


def test_a_command_line_without_flags_gives_the_default_settings():
    assert parse_train_flags([]) == TrainConfig()
    assert parse_val_flags(["--weights", "W"]) == ValConfig(weights=("W",))


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--epochs", "7", "--cos-lr", "--freeze", "3", "model.24.m", "--cache"],
        ["--weights=-odd name.pt", "--data", "a b.yaml", "--time", "0.5", "--save-period", "-1"],
        ["--seed", "5", "--override", "lr0=0.1", "mosaic=0", "--hyp", "x.yaml", "--evolve"],
    ],
)
def test_settings_as_words_give_these_settings_again(words):
    config = parse_train_flags(words)
    assert parse_train_flags(as_words(config)) == config


def test_words_leave_out_defaults():
    config = parse_train_flags(["--epochs", "7", "--seed", "0", "--name", "x"])
    assert sorted(as_words(config)) == ["--epochs=7", "--name=x"]
