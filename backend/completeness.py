"""What a backend lacks of `backend/contract.py`, found by looking, not by computing."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from backend import contract, select


def missing(name: str) -> list[str]:
    """One line for each promised name that is absent or takes other parameters.

    Binds the process to the backend. Raises `select.BackendError` where that fails.
    """
    select.use(name)
    found = {
        module: importlib.import_module(f"backend.{name}.{module}") for module in contract.MODULES
    }
    lines = [
        line
        for module, promised in contract.MODULES.items()
        for line in _compare(module, found[module], promised)
    ]
    for module in ("optim", "multi_tensor"):
        for name in members(contract.Optim):
            optimizer = getattr(found[module], name, None)
            lines += _compare(f"{module}.{name}", optimizer, contract.Optimizer)
    # The methods of these are the frameworks' own: that they are there is all that is asked.
    lines += _absent("Tensor", found["ops"].zeros((1,)), contract.Tensor)
    for module_class in (contract.NN.Module, contract.NN.ModuleList, contract.NN.Sequential):
        instance = getattr(found["nn"], module_class.__name__)()
        lines += _absent(module_class.__qualname__, instance, module_class)
    return lines


def _compare(path: str, found: Any, promised: type) -> list[str]:
    lines = _absent(path, found, promised)
    for name, member in members(promised).items():
        if inspect.isfunction(member) and hasattr(found, name):
            wanted, given = _parameters(member), _parameters(getattr(found, name))
            if wanted != given:
                lines.append(f"{path}.{name} takes ({given}), not ({wanted})")
    return lines


def _absent(path: str, found: Any, promised: type) -> list[str]:
    names = [*members(promised), *inspect.get_annotations(promised)]
    return [f"{path}.{name} is missing" for name in names if not hasattr(found, name)]


def members(promised: type) -> dict[str, Any]:
    """The methods, properties and classes that the contract itself defines on a class."""
    unwrapped = {n: getattr(member, "__func__", member) for n, member in vars(promised).items()}
    return {
        name: member
        for name, member in unwrapped.items()
        if isinstance(member, (property, type))
        or (inspect.isfunction(member) and member.__module__ == contract.__name__)
    }


def _parameters(function: Any) -> str:
    """Names and defaults, `self` apart: "x, dim=None"."""
    parameters = inspect.signature(function).parameters.values()
    return ", ".join(
        parameter.name
        if parameter.default is parameter.empty
        else f"{parameter.name}={parameter.default!r}"
        for parameter in parameters
        if parameter.name != "self"
    )
