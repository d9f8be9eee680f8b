"""A flag declared as a field of a settings dataclass."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pytest

from utils.cli.flags import (
    GROUPS,
    add_flags,
    check_flags,
    flag,
    flags_of,
    new_parser,
    read_flags,
    whole_from,
)
from utils.cli.train_config import TrainConfig, parse_train_flags
from utils.cli.val_config import ValConfig, parse_val_flags
from utils.errors import UserError


@dataclass(frozen=True)
class Cups:
    number: int = flag("data", "--cups", "--mugs", default=2, check=whole_from(1), help="of tea")
    sugar: bool = flag("model", "--sugar", default=False, help="in each")
    kinds: tuple[str, ...] = flag("data", "--kinds", default=("green",), type=str, nargs="+",
        help="of tea")  # fmt: skip
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
    assert values == {"number": 3, "sugar": True, "kinds": ("black", "white"), "strength": None}
    assert given == {"number": 3, "sugar": True, "kinds": ("black", "white")}


def test_defaults_are_those_of_the_dataclass():
    values, given = read(Cups)
    assert (Cups(**values), given) == (Cups(), {})
    assert {type(value) for value in read(Cups, "--strength", "3")[0].values()} >= {float}


def test_a_subclass_may_change_a_default_and_keeps_the_flag():
    assert read(Pots)[0]["number"] == 1
    assert read(Pots, "--cups", "4")[0]["number"] == 4
    with pytest.raises(UserError, match="--cups 0; a whole number from 1 up is needed"):
        Pots(0)


def test_values_are_checked_however_settings_are_built():
    with pytest.raises(UserError, match="--cups 0; a whole number from 1 up is needed"):
        Cups(number=0)


def test_help_shows_the_groups_in_their_order(capsys):
    with pytest.raises(SystemExit):
        read(Cups, "--help")
    text = capsys.readouterr().out.partition("Make tea")[2]
    assert text.index("\ndata:\n") < text.index("--cups") < text.index("\nmodel:\n")
    assert text.index("\nmodel:\n") < text.index("--sugar  ")
    assert "detection:" not in text  # empty


@pytest.mark.parametrize("settings", [TrainConfig, ValConfig])
def test_every_setting_of_a_command_has_a_flag_of_its_own(settings):
    flags = flags_of(settings)
    assert set(flags) == {field.name for field in fields(settings)}
    names = [name for found in flags.values() for name in found.names]
    assert len(names) == len(set(names))
    assert {found.group for found in flags.values()} <= set(GROUPS)


def test_a_command_line_without_flags_gives_the_default_settings():
    assert parse_train_flags([]) == TrainConfig()
    assert parse_val_flags(["--weights", "W"]) == ValConfig(weights="W")
