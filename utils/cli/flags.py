"""A flag in one place: its names, default, help and check, as a field of a settings dataclass.

`add_flags` gives a parser the flags of such a class, `check_flags` belongs into its
`__post_init__`, and `dataclasses.fields` tells the defaults without any command line.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from backend.processes import this_process
from utils.errors import UserError
from utils.screen.text import as_message, printable_lines

GROUPS = (
    "data",
    "model",
    "recipe",
    "detection",
    "backend and device",
    "speed",
    "several processes",
    "interruption",
    "output",
)  # of --help, in this order

Check = Callable[[str, Any], None]  # takes the flag's name and value; raises UserError
_NOT_GIVEN = object()


class Flag(NamedTuple):
    """How a field is written on the command line."""

    names: tuple[str, ...]  # messages show the first
    group: str
    check: Check | None
    options: Mapping[str, Any]  # of `argparse.add_argument`


def flag(
    group: str, *names: str, default: Any, help: str, check: Check | None = None, **options: Any
) -> Any:
    """Return a field of a settings dataclass with its flag.

    Args:
        group: one of GROUPS.
        names: "--epochs", then synonyms.
        default: its type is the flag's, unless options name another; False makes a switch.
        check: called when settings are built.
        options: of `argparse.add_argument`.
    """
    assert group in GROUPS, group
    if default is False:
        options["action"] = "store_true"
    elif default is not None:
        options.setdefault("type", type(default))
    metadata = {"flag": Flag(names, group, check, {**options, "help": help})}
    return dataclasses.field(default=default, metadata=metadata)


def flags_of(settings: Any) -> dict[str, Flag]:
    """Return the flag of each field, by the field's name.

    A subclass that gives a field another default leaves the flag as it is.
    """
    cls = settings if isinstance(settings, type) else type(settings)
    return {
        field.name: field.metadata["flag"]
        for base in reversed(cls.__mro__)
        if dataclasses.is_dataclass(base)
        for field in dataclasses.fields(base)
        if "flag" in field.metadata
    }


def add_flags(parser: argparse.ArgumentParser, settings: type) -> None:
    """Give a parser the flags of a settings class, group by group."""
    flags = flags_of(settings)
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    for title in GROUPS:
        group = parser.add_argument_group(title)
        for name, found in flags.items():
            if found.group == title:
                options = {**found.options, "default": defaults[name]}
                group.add_argument(*found.names, dest=name, **options)


def check_flags(settings: Any) -> None:
    """Raise UserError for the first field with a value that its flag does not accept."""
    for name, found in flags_of(settings).items():
        if found.check is not None:
            found.check(found.names[0], getattr(settings, name))


def read_flags(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a command line by name: all of them, and those that it names.

    Args:
        arguments: by default those of sys.argv.
    """
    values = vars(parser.parse_args(arguments))
    values = {name: tuple(x) if isinstance(x, list) else x for name, x in values.items()}
    parser.set_defaults(**dict.fromkeys(values, _NOT_GIVEN))
    found = vars(parser.parse_args(arguments))
    return values, {name: values[name] for name, x in found.items() if x is not _NOT_GIVEN}


def whole_from(lowest: int) -> Check:
    """Return a check for whole numbers from `lowest` up."""

    def check(name: str, value: int) -> None:
        require_from(name, value, lowest)

    return check


def whole_between(lowest: int, highest: int) -> Check:
    """Return a check for whole numbers from `lowest` to `highest`."""

    def check(name: str, value: int) -> None:
        if not lowest <= value <= highest:
            text = f"a whole number from {lowest} to {highest} is needed"
            raise UserError(f"{name} {value}; {text}")

    return check


def require_from(name: str, value: int, lowest: int) -> None:
    """Raise UserError unless value is at least lowest."""
    if value < lowest:
        raise UserError(f"{name} {value}; a whole number from {lowest} up is needed")


def require_fraction(name: str, value: float) -> None:
    """Raise UserError unless value is from 0 to 1."""
    if not 0 <= value <= 1:
        raise UserError(f"{name} {value}; a number from 0 to 1 is needed")


class _Parser(argparse.ArgumentParser):
    """A parser that prints an error once, not once a process, and printable."""

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(printable_lines(message), file)  # a word may be a file's name

    def error(self, message: str) -> NoReturn:
        if this_process().is_main:
            super().error(as_message(message))
        raise UserError(message)


def new_parser(program: str, description: str) -> argparse.ArgumentParser:
    """Return an argument parser that accepts no abbreviations and shows every default."""
    return _Parser(
        prog=program,
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
