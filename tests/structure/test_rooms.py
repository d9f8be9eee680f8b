"""How the rooms hang together: arrows, chains and loads; what the core leaves to its wings."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from tests.structure.test_budgets import BUDGETS, room_of
from tests.structure.test_imports import FILES, cycle_in, graph, imports_of, nearest_module, parse

DOORS = ("scripts", "duet")  # where a user comes in: they import what they start
# The figures reached; lower them when they fall.
MOST_ARROWS = 148
LONGEST_CHAIN = 16
LOADS = {"duet.models.heads.base": 21, "duet.models.heads.anchor.loss": 24, "compare": 49}

PRODUCT = {module: path for module, path in FILES.items() if room_of(path) in BUDGETS}


@cache
def loaded() -> Mapping[str, set[str]]:
    """By module of the product, the modules that importing it imports: those at its top level."""
    return {
        module: {
            found
            for name in top_level_imports(parse(path))
            if (found := nearest_module(name)) in PRODUCT and found != module
        }
        for module, path in PRODUCT.items()
    }


def top_level_imports(tree: ast.AST) -> Iterator[str]:
    """Full names that a file imports outside of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from imports_of(ast.Module([node], []))
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from top_level_imports(node)


def arrows() -> Mapping[str, set[str]]:
    """By room, the other rooms from which its files import."""
    found: dict[str, set[str]] = {room: set() for room in BUDGETS if room not in DOORS}
    for module, others in graph().items():
        room = room_of(FILES[module])
        if room in found:
            found[room] |= {room_of(FILES[other]) for other in others} & set(found) - {room}
    return found


def test_no_room_imports_itself_indirectly() -> None:
    assert cycle_in(arrows()) == []


def test_few_imports_join_the_rooms() -> None:
    assert sum(map(len, arrows().values())) <= MOST_ARROWS


def test_import_chains_stay_short() -> None:
    @cache
    def chain(module: str) -> tuple[str, ...]:
        return (module, *max(map(chain, loaded()[module]), key=len, default=()))

    longest = max(map(chain, PRODUCT), key=len)
    assert len(longest) <= LONGEST_CHAIN, longest


@pytest.mark.parametrize("module", LOADS)
def test_interfaces_stay_light(module: str) -> None:
    seen: set[str] = set()
    found = {module}
    while found:
        seen |= found
        found = set().union(*(loaded()[one] for one in found)) - seen
    assert len(seen) - 1 <= LOADS[module], sorted(seen)
