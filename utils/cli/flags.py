"""Flags as fields of settings dataclasses: names, default, help and check in one place.

`add_flags` adds a class's flags to a parser, `check_flags` is called in its `__post_init__`, and
`dataclasses.fields` gives the defaults without a command line.
"""

import argparse
import dataclasses
import difflib
import math
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol

from duet.utils.cli.absent_flags import VALUE, accept_without_effect
from duet.utils.errors import UserError
from duet.utils.optional import load_wings
from duet.utils.processes.start import program as program_name
from duet.utils.project import PROJECT
from duet.utils.text import printable, printable_lines

NEAR = 0.7  # minimum similarity of suggested flags, from 0 to 1
VERY_NEAR = 0.9  # for a flag that another command has: --split, where --splits is meant
GROUPS = (
    "data",
    "model",
    "recipe",
    "detection",
    "backend and device",
    "speed",
    "several processes",
    "interruption",
    "serving",
    "output",
)  # sections of --help, in this order

KINDS = {int: "a whole number", float: "a number"}  # words for what argparse converts to
# The settings class of each command, to name the one that has a flag.
SETTINGS = {
    "train": "duet.utils.cli.train_config:TrainConfig",
    "val": "duet.utils.cli.val_config:ValConfig",
    "detect": "duet.utils.detect.config:DetectConfig",
    "export": "duet.utils.export.config:ExportConfig",
}

_NAMED = re.compile(r"^argument ([^\s/:]+)\S*: ")  # argparse's beginning of a message

Check = Callable[[str, Any], None]  # called with name and value; raises UserError
FlagValues = Mapping[str, Any]  # by name of the field, or of the flag
_NOT_GIVEN = object()


class Settings(Protocol):
    """An instance of a dataclass whose fields are flags."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]


class UnknownFlagError(UserError):
    """A command has no flag of this name."""


class Flag(NamedTuple):
    names: tuple[str, ...]  # messages use the first
    group: str
    check: Check | None
    options: FlagValues  # passed to `argparse.add_argument`


def flag(
    group: str,
    *names: str,
    default: object,
    help: str,
    check: Check | None = None,
    **options: object,
) -> Any:
    """Return a settings dataclass field with its flag.

    Args:
        group: one of GROUPS.
        names: "--epochs", then synonyms.
        default: determines the flag's type unless set in options; False makes a switch, and
            `automatic_switch` one with a third state.
        check: called when settings are built.
        options: passed to `argparse.add_argument`.
    """
    assert group in GROUPS, group
    if default is False:
        options["action"] = "store_true"
    elif default is not None:
        options.setdefault("type", type(default))
    metadata = {"flag": Flag(names, group, check, {**options, "help": help})}
    return dataclasses.field(default=default, metadata=metadata)


def automatic_switch(group: str, *names: str, help: str) -> Any:
    """Return a field: True for --NAME, False for --no-NAME, else None, for automatic."""
    return flag(group, *names, default=None, help=help, action=argparse.BooleanOptionalAction)


def same_flag(settings: type, name: str, **options: object) -> Any:
    """Return a field with another class's flag and default, overriding some options."""
    found = flags_of(settings)[name]
    found = found._replace(options={**found.options, **options})
    (field,) = (field for field in dataclasses.fields(settings) if field.name == name)
    return dataclasses.field(default=field.default, metadata={"flag": found})


def flags_of(settings: Settings | type) -> dict[str, Flag]:
    """Return the flags by field name.

    Overriding a field's default in a subclass keeps its flag.
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
    """Add the flags of a settings class to a parser, by group."""
    flags = flags_of(settings)
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    for title in GROUPS:
        group = parser.add_argument_group(title)
        for name, found in flags.items():
            if found.group == title:
                options = {**found.options, "default": defaults[name]}
                group.add_argument(*found.names, dest=name, **options)


def as_words(settings: Settings) -> list[str]:
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    flags = flags_of(settings).items()
    changed = {
        found.names[0]: getattr(settings, name)
        for name, found in flags
        if getattr(settings, name) != defaults[name]
    }
    return words_of_flags(changed, {f.names[0] for name, f in flags if defaults[name] is None})


def words_of_flags(values: FlagValues, automatic: Collection[str] = ()) -> list[str]:
    """Return command-line arguments; True is a switch, False and None are omitted.

    automatic: names whose False is --no-NAME.
    """
    words = []
    for name, value in values.items():
        if value is False and name in automatic:
            words.append(f"--no-{name[2:]}")
        elif isinstance(value, (list, tuple)):
            words += [name, *map(str, value)]
        elif value is not None and value is not False:  # with "=", values may begin with a hyphen
            words.append(name if value is True else f"{name}={value}")
    return words


def check_flags(settings: Settings) -> None:
    """Raise UserError for the first invalid value."""
    for name, found in flags_of(settings).items():
        if found.check is not None:
            found.check(found.names[0], getattr(settings, name))


def require_apart(settings: Settings, pairs: Iterable[tuple[str, str, str]]) -> None:
    """Raise UserError for conflicting flags.

    pairs: two field names, and why they cannot be combined.
    """
    for first, second, reason in pairs:
        if getattr(settings, first) and getattr(settings, second):
            flags = flags_of(settings)
            names = " with ".join(flags[name].names[0] for name in (first, second))
            raise UserError(f"{names}: {reason}; remove one of them")


def read_flags(
    settings: type,
    program: str,
    about: str,
    arguments: Sequence[str] | None = None,
    absent: Mapping[str, str] | None = None,
) -> tuple[FlagValues, FlagValues]:
    """Parse a command line, by default sys.argv; return all settings by name, and those given.

    settings: the class whose flags the command has; others as for `new_parser`.
    """
    parser = new_parser(program, about, absent)
    add_flags(parser, settings)
    values = vars(parser.parse_args(arguments))
    values = {name: tuple(x) if isinstance(x, list) else x for name, x in values.items()}
    parser.set_defaults(**dict.fromkeys(values, _NOT_GIVEN))
    found = vars(parser.parse_args(arguments))
    return values, {name: values[name] for name, x in found.items() if x is not _NOT_GIVEN}


def whole_from(lowest: int, highest: float = math.inf) -> Check:
    """Return a check for whole numbers of at least `lowest`, and at most `highest`."""
    return within(lowest, highest, kind="a whole number")


def within(
    lowest: float,
    highest: float = math.inf,
    kind: str = "a number",
    above: bool = False,
    below: bool = False,
) -> Check:
    """Return a check for finite numbers in a range; None, for a flag not given, passes.

    Args:
        kind: description of the number, such as "a number of seconds".
        above: exclude `lowest`.
        below: exclude `highest`.
    """
    start = "above" if above else "from" if highest < math.inf else "of at least"
    text = f"{kind} {start} {lowest:g}"
    if highest < math.inf:
        end = "below " if below else "up to " if above else ""
        text += f" {'and' if above else 'to'} {end}{highest}"

    def check(name: str, value: float | None) -> None:
        if value is None:
            return
        inside = lowest <= value <= highest and abs(value) < math.inf
        if not inside or (above and value == lowest) or (below and value == highest):
            shown = value if isinstance(value, int) else f"{value:g}"
            raise UserError(f"{name} {shown}; accepted: {text}")

    return check


require_fraction = within(0, 1)


class _Parser(argparse.ArgumentParser):
    """Parser that raises a two-line UserError for mistakes.

    Attributes:
        absent: replacements for public flags that do not exist, by name.
    """

    absent: Mapping[str, str] = {}

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(printable_lines(message), file)  # may contain file names

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _Help, "allow_abbrev": False, **options})
        for kind in KINDS:
            self.register("type", kind, partial(_parse, kind))

    def error(self, message: str) -> NoReturn:
        raise UserError(self._with_help(_NAMED.sub(r"\1 ", message)))

    def _with_help(self, message: str) -> str:
        return f"{message}\n`{self.prog} --help` lists what is accepted"

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            given = list(sys.argv[1:] if args is None else args)
            self._command_in(given)._refuse(unknown, given)
        return found

    def _command_in(self, words: Sequence[str]) -> "_Parser":
        """Return the parser of the subcommand in a command line, or this one."""
        commands = [x for x in self._actions if isinstance(x, argparse._SubParsersAction)]
        parsers = {name: parser for action in commands for name, parser in action.choices.items()}
        return next((parsers[word] for word in words if word in parsers), self)

    def _refuse(self, unknown: Sequence[str], given: Sequence[str]) -> NoReturn:
        pairs = zip(unknown, [*unknown[1:], "-"], strict=True)
        named = [self._answer(*pair) for pair in pairs if pair[0].startswith("-")]
        if named:
            raise UnknownFlagError(self._with_help("\n".join(named)))
        before = given[: given.index(unknown[0])] if unknown[0] in given else []
        self.error(self._surplus(unknown, before))

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            accepted = ", ".join(map(str, action.choices))
            is_command = isinstance(action, argparse._SubParsersAction)
            name = "command" if is_command else _name(action)  # its metavar lists what is accepted
            self.error(f"{name} {_shown(str(value))}; accepted: {accepted}")

    def _match_argument(self, action: argparse.Action, pattern: str) -> int:
        try:
            return super()._match_argument(action, pattern)  # type: ignore[misc]
        except argparse.ArgumentError as error:
            if action.nargs not in (None, "+"):
                raise
            help = " ".join((action.help or "").replace("%%", "%").split())
            self.error(f"{_name(action)}: its value is missing; {help or error.message}")

    def _surplus(self, words: Sequence[str], before: Sequence[str]) -> str:
        """Return a message about words without a flag, which follow those before."""
        after = f" after {printable(before[-1])!r}" if before else ""
        first = f"unexpected argument {printable(words[0])!r}{after}; "
        pairs = [word.partition("=") for word in words]
        if all(f"--{name}" in self._option_string_actions for name, *_ in pairs):
            named = " ".join(f"--{name} {value}".strip() for name, _, value in pairs)
            return f"{first}did you mean {printable(named)}?"
        return f"{first}put its flag before it, and quote a pattern such as 'images/*.jpg'"

    def _answer(self, word: str, following: str) -> str:
        """Return a message about an unknown flag.

        following: the next word, which is its value unless that is a flag.
        """
        name, _, value = printable(word).partition("=")
        value = value or ("" if following.startswith("-") else printable(following))
        if instead := self.absent.get(name.replace("_", "-")):
            return f"{name} is not supported: {instead.replace(VALUE, value or VALUE)}"
        owner = _owner(name)
        cutoff = VERY_NEAR if owner else NEAR
        near = difflib.get_close_matches(name, self._option_string_actions, n=1, cutoff=cutoff)
        if owner and not near:
            return f"{name} is a flag of duet {owner}, not of {self.prog}; leave it out"
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"unknown flag {name} for {self.prog}{hint}"


def _parse(kind: type, text: str) -> object:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{_shown(text)}; accepted: {KINDS[kind]}") from None


def _shown(text: str) -> str:
    return printable(text) or "''"


def _name(action: argparse.Action) -> str:
    return action.option_strings[0] if action.option_strings else str(action.metavar or action.dest)


def _owner(name: str) -> str:
    """Return the first command that has a flag; "" if none has."""
    for command, place in SETTINGS.items():
        module, _, settings = place.partition(":")
        for found in load_wings([module]):
            if any(name in x.names for x in flags_of(getattr(found, settings)).values()):
                return command
    return ""


def from_one(text: str) -> int:
    """Parse a whole number of at least 1; for use as argparse `type`."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{_shown(text)}; accepted: a whole number of at least 1")
    return int(text)


class _Help(argparse.HelpFormatter):
    """Help with defaults in command-line form; empty defaults are omitted."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _get_help_string(self, action: argparse.Action) -> str:
        default, text = action.default, action.help or ""
        if default in (None, "", argparse.SUPPRESS) or default is False or not text:
            return text
        if isinstance(default, Path) and default.is_relative_to(PROJECT):
            default = default.relative_to(PROJECT)
        words = " ".join(map(str, default)) if isinstance(default, (tuple, list)) else str(default)
        return f"{text} (default: {words.replace('%', '%%')})" if words else text


def new_parser(
    program: str, description: str, absent: Mapping[str, str] | None = None
) -> argparse.ArgumentParser:
    """Return an argument parser that accepts no abbreviations and shows the defaults.

    Args:
        program: the command as a user types it.
        absent: replacements for public flags that do not exist, by name with hyphens; some
            are accepted without effect.
    """
    started = program_name()
    program = started if started.startswith("duet ") else program
    parser = _Parser(prog=program, description=description)
    parser.absent = absent or {}
    accept_without_effect(parser, parser.absent)
    return parser
