"""YAML files as plain mappings, read strictly (data only, no key twice) and written whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from utils.errors import UserError
from utils.files.atomic import atomic_text_file
from utils.files.project import PROJECT
from utils.files.regular import read_text

MAX_BYTES = 1 << 22


def read_yaml(flag: str, path: str | Path, known: str) -> Mapping[Any, Any]:
    """Read a YAML file whose top level is a mapping.

    Args:
        flag: the one that named the file, for messages.
        known: what could be given instead; ends the message for a file that is not there.

    Raises:
        UserError: the file cannot be read, is no YAML, asks for more than plain data, has a key
            twice, or is no mapping.
    """
    try:
        document = yaml.load(read_text(path, MAX_BYTES), _UniqueKeyLoader)
    except OSError as error:
        raise UserError(f"{flag} {path}: {error.strerror}; {known}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{flag} {path} is not valid YAML: {error}") from error
    if not isinstance(document, Mapping):
        raise UserError(f"{flag} {path}: a mapping of names to values is needed; {known}")
    return document


def find_yaml(argument: str, folder: str) -> Path:
    """Return the file as given; if there is none, the one of its name in the project's folder."""
    shipped = PROJECT / folder / Path(argument).name
    return shipped if shipped.is_file() and not Path(argument).exists() else Path(argument)


def write_yaml(path: Path, document: Mapping[str, Any]) -> None:
    """Write settings for people to read, in the order given."""
    with atomic_text_file(path) as file:
        yaml.safe_dump(dict(document), file, sort_keys=False)


class _UniqueKeyLoader(yaml.SafeLoader):
    """The safe loader, but two equal keys are an error; by itself it drops the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        written = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        keys = [self.construct_object(key, deep=True) for key in written]
        for position, key in enumerate(keys):
            if key in keys[:position]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} appears twice", written[position].start_mark
                )
        return super().construct_mapping(node, deep)
