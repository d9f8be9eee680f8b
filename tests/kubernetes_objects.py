"""docs/examples/train-job.yaml as data, and Kubernetes' own types to check it with."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from typing import Any

import pytest
import yaml

from utils.files.project import PROJECT

JOB = PROJECT / "docs" / "examples" / "train-job.yaml"


def documents() -> dict[str, dict[str, Any]]:
    """The objects of the file by their kind."""
    return {document["kind"]: document for document in yaml.safe_load_all(JOB.read_text())}


def kubernetes_types(monkeypatch: pytest.MonkeyPatch) -> dict[str, type]:
    """lightkube-models' dataclasses by kind, without the client that they derive from."""
    stand_in = types.ModuleType("lightkube.core.schema")
    vars(stand_in).update(
        DictMixin=object, dataclass=dataclasses.dataclass, field=dataclasses.field
    )
    monkeypatch.setitem(sys.modules, "lightkube.core", types.ModuleType("lightkube.core"))
    monkeypatch.setitem(sys.modules, "lightkube.core.schema", stand_in)
    from lightkube.models import batch_v1, core_v1

    modules = {"Job": batch_v1, "Service": core_v1, "PersistentVolumeClaim": core_v1}
    return {kind: getattr(module, kind) for kind, module in modules.items()}


def disagreements(value: Any, wanted: Any, place: str) -> list[str]:
    """Where a value is not what a type of the schema asks for."""
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is typing.Union:
        return disagreements(value, inner[0], place)  # of Optional: a key is left out, not null
    if dataclasses.is_dataclass(wanted):
        return disagreements_of_object(value, wanted, place)
    if origin not in (list, dict):
        # Quantities ("32Gi") are texts; a number in their place is not what one means.
        kind = wanted if isinstance(wanted, type) else str
        return [] if type(value) is kind else [f"{place}: {value!r} is no {kind.__name__}"]
    if not isinstance(value, origin):
        return [f"{place}: {value!r} is no {origin.__name__}"]
    items = value.items() if origin is dict else enumerate(value)
    return [
        text for key, item in items for text in disagreements(item, inner[-1], f"{place}.{key}")
    ]


def disagreements_of_object(value: Any, wanted: Any, place: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{place}: {value!r} is no {wanted.__name__}"]
    kinds = typing.get_type_hints(wanted)
    required = {
        field.name
        for field in dataclasses.fields(wanted)
        if field.default is field.default_factory is dataclasses.MISSING
    }
    found = [f"{place}: {name} is missing" for name in sorted(required - set(value))]
    for name, item in value.items():
        if name in kinds:
            found += disagreements(item, kinds[name], f"{place}.{name}")
        else:
            found.append(f"{place}: {wanted.__name__} has no {name}")
    return found
