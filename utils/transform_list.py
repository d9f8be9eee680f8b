"""The transforms of --albumentations: read from a YAML file, kept as JSON text.

A run stores the text, so that resuming uses the transforms it began with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from duet.utils.errors import UserError, brief
from duet.utils.json_files import parse_json
from duet.utils.project import PROJECT
from duet.utils.yaml_files import find_yaml, read_yaml

FOLDER = "data/albumentations"
PUBLIC_TRANSFORMS = PROJECT / FOLDER / "public.yaml"
FLAG = "--albumentations"


def read_transforms(path: str) -> str:
    """Read the transforms in a YAML file as text; "" for no file.

    The file maps names to arguments, in order of application: `Blur: {p: 0.01}`.

    Raises:
        UserError: it cannot be read, or does not map names to arguments.
    """
    if not path:
        return ""
    found = find_yaml(path, FOLDER)
    document = read_yaml(FLAG, found, f"{PUBLIC_TRANSFORMS} is an example")
    require_arguments(f"{FLAG} {found}", document)
    return json.dumps({name: given or {} for name, given in document.items()})


def require_arguments(where: str, document: Mapping[Any, Any]) -> None:
    """Raise UserError unless a document maps names of transforms to keyword arguments."""
    if not document:
        raise UserError(f"{where}: no transforms; add a line such as Blur: {{p: 0.01}}")
    for name, given in document.items():
        if not (isinstance(name, str) and name.isidentifier()):
            raise UserError(f"{where}: {brief(name)} is not a transform name such as Blur")
        arguments = {} if given is None else given
        if not (isinstance(arguments, dict) and all(isinstance(key, str) for key in arguments)):
            raise UserError(
                f"{where}: {name}: {brief(given)}; accepted: arguments by name, as in {{p: 0.5}}"
            )


def parse_transforms(text: str) -> dict[str, Any]:
    """Parse the text, which may come from an untrusted state."""
    try:
        document = parse_json(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UserError(f"{FLAG}: {brief(text)}; accepted: a mapping of transforms to arguments")
    require_arguments(FLAG, document)
    return document
