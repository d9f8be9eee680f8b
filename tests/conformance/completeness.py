"""`python -m tests.conformance.completeness NAME`: list what backend NAME lacks, one per line.

It compares names and parameters with `backend/contract/`, no values.
"""

import importlib
import importlib.util
import inspect
import sys
from typing import Any

import numpy as np

from duet.backend import contract, select
from duet.backend.contract import inference, training


def missing(name: str) -> list[str]:
    """Return one line per promised name that is missing or has different parameters.

    Binds the process to the backend. Raises `select.BackendError` where that fails.
    """
    select.use(name)
    trains = select.FRAMEWORKS[name].trains
    modules = (training if trains else inference).MODULES
    paths = {module: f"duet.backend.{name}.{module}" for module in modules}
    # None if the file does not exist.
    found: dict[str, Any] = {
        module: importlib.import_module(path) if importlib.util.find_spec(path) else None
        for module, path in paths.items()
    }
    lines = [
        line
        for module, promised in modules.items()
        for line in _compare(module, found[module], promised)
    ]
    for module in ("optim", "multi_tensor") if trains else ():
        for optimizer in (name for name in members(contract.Optim) if name[0].isupper()):
            path = f"{module}.{optimizer}"
            lines += _compare(path, getattr(found[module], optimizer, None), contract.Optimizer)
    # The frameworks implement the methods of these classes: check only their names.
    lines += _absent("Tensor", found["ops"].tensor(np.zeros(1, np.float32)), contract.Tensor)
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
    """Return the methods, properties and classes that the contract itself defines on a class."""
    owners = [owner for owner in reversed(promised.__mro__) if _is_contract_member(owner)]
    found = {name: member for owner in owners for name, member in vars(owner).items()}
    unwrapped = {name: getattr(member, "__func__", member) for name, member in found.items()}
    return {
        name: member
        for name, member in unwrapped.items()
        if isinstance(member, (property, type))
        or (inspect.isfunction(member) and _is_contract_member(member))
    }


def _is_contract_member(defined: Any) -> bool:
    return defined.__module__.startswith(contract.__name__)


def _parameters(function: Any) -> str:
    """Return names and defaults without `self`: "x, dim=None"."""
    parameters = inspect.signature(function).parameters.values()
    return ", ".join(
        parameter.name
        if parameter.default is parameter.empty
        else f"{parameter.name}={parameter.default!r}"
        for parameter in parameters
        if parameter.name != "self"
    )


if __name__ == "__main__":
    found = missing(sys.argv[1])
    print("".join(f"{line}\n" for line in found), end="")
    sys.exit(bool(found))
