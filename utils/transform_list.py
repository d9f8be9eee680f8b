"""Transforms of --albumentations: a YAML file's, as one text of JSON.

A run keeps the text: it goes on with the transforms with which it began.
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
    """Return the transforms of a YAML file as one text; "" for no file.

    The file maps names to arguments, in the order in which they are applied: `Blur: {p: 0.01}`.

    Raises:
        UserError: it cannot be read, or is no mapping of names to arguments.
    """
    if not path:
        return ""
    found = find_yaml(path, FOLDER)
    document = read_yaml(FLAG, found, f"{PUBLIC_TRANSFORMS} is an example")
    require_arguments(f"{FLAG} {found}", document)
    return json.dumps({name: given or {} for name, given in document.items()})


def require_arguments(where: str, document: Mapping[Any, Any]) -> None:
    """Raise UserError unless a document maps names of transforms to arguments by name."""
    if not document:
        raise UserError(f"{where}: no transform is named; write a line such as Blur: {{p: 0.01}}")
    for name, given in document.items():
        if not (isinstance(name, str) and name.isidentifier()):
            raise UserError(f"{where}: {brief(name)} is no name of a transform; write one as Blur")
        arguments = {} if given is None else given
        if not (isinstance(arguments, dict) and all(isinstance(key, str) for key in arguments)):
            raise UserError(
                f"{where}: {name}: {brief(given)}; its arguments by name are needed: {{p: 0.5}}"
            )


def parse_transforms(text: str) -> dict[str, Any]:
    """Return the transforms of a text; it may be that of a state from anywhere."""
    try:
        document = parse_json(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UserError(f"{FLAG}: {brief(text)}; names of transforms are needed")
    require_arguments(FLAG, document)
    return document
