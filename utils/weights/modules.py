"""Convert unpickled modules to named arrays; reject modules that we would build differently.

A pickled module of either framework is a class name and a state with the dicts _parameters,
_buffers and _modules.
"""

from collections.abc import Iterator
from typing import Any

from duet.utils.activation import DEFAULT_ACTIVATION, NamedActivation, parse_activation
from duet.utils.errors import UserError, brief
from duet.utils.weights.pickle_reader import Record
from duet.utils.weights.tensors import Contents, StoredArray, is_tensor

MAX_NAME = 100  # characters of a dotted name; the public models have up to 40
TENSOR_GROUPS = ("_parameters", "_buffers")
HIDDEN_BUFFERS = "_non_persistent_buffers_set"
BATCHNORM_EPS = 1e-3
CLASSIFIER, CLASSIFIER_EPS = "Classify", 1e-5  # a classifier's last layer keeps the usual eps
NO_ACTIVATION = NamedActivation("Identity")
ATTENTION_HEADS = 4


def class_name(value: Any) -> str:
    """Return the class name of a module's record; "" for anything else."""
    return value.kind.rpartition(".")[2] if is_module(value) else ""


def is_module(value: object) -> bool:
    return (
        isinstance(value, Record)
        and isinstance(value.state, dict)
        and isinstance(value.state.get("_modules"), dict)
    )


def walk_modules(
    module: Record, prefix: str = "", seen: set[int] | None = None
) -> Iterator[tuple[str, Record]]:
    """Yield (prefix, module) of a module and all inside it, in the order of state_dict().

    The walk is linear in the file's size: a part that occurs twice, or a name that is too long,
    which also limits the depth, is a UserError.
    """
    seen = set() if seen is None else seen
    for contents in _contents(module):
        if id(contents) in seen:
            raise UserError(f"a module is at two places, one is {brief(prefix)}")
        seen.add(id(contents))
    yield prefix, module
    for name, child in module.state["_modules"].items():
        if isinstance(name, str) and is_module(child):
            yield from walk_modules(child, dotted_name(prefix, name) + ".", seen)


def dotted_name(prefix: str, name: str) -> str:
    """Return the name of a part; UserError for a long one, which each inner part would repeat."""
    if len(prefix) + len(name) > MAX_NAME:
        raise UserError(f"a name of over {MAX_NAME} characters, {brief(prefix + name)}")
    return prefix + name


def _contents(module: Record) -> Iterator[dict | list]:
    for key in ("_modules", *TENSOR_GROUPS, HIDDEN_BUFFERS):
        group = module.state.get(key)
        if isinstance(group, (dict, list)) and group:
            yield group


def module_arrays(module: Record, contents: Contents) -> dict[str, StoredArray]:
    arrays = {}
    for prefix, part in walk_modules(module):
        hidden = part.state.get(HIDDEN_BUFFERS)
        names = {x for x in hidden if isinstance(x, str)} if isinstance(hidden, list) else set()
        for group in TENSOR_GROUPS:
            tensors = part.state.get(group)
            for name, value in tensors.items() if isinstance(tensors, dict) else ():
                if is_tensor(value) and isinstance(name, str) and name not in names:
                    arrays[dotted_name(prefix, name)] = contents.read_tensor(value)
    return arrays


def check_modules(module: Record, activation: object) -> None:
    """Raise UserError for a module that would compute other outputs here.

    activation: the model YAML's, such as nn.LeakyReLU(0.1); None if it names none.
    """
    wanted = DEFAULT_ACTIVATION if activation is None else parse_activation(activation)
    linear = classifier = "-"  # the last prefixes of these kinds; no name starts with a dash
    for prefix, part in walk_modules(module):
        where = brief(prefix.removesuffix("."))[1:-1]
        kind = class_name(part)
        if kind == "GhostBottleneck":
            linear = f"{prefix}conv.2."  # its second convolution has no activation
        if kind == CLASSIFIER:
            classifier = prefix
        found = activation_of(part.state["_modules"].get("act"))
        expected = NO_ACTIVATION if prefix.startswith(linear) else wanted
        if expected is not None and found not in (None, expected):
            raise UserError(
                f"layer {where} uses the activation {found}; by its model YAML {expected} is built "
                "here, so the weights would give other outputs; give a model with it, or train one"
            )
        eps, heads = part.state.get("eps"), part.state.get("num_heads")
        built = CLASSIFIER_EPS if prefix.startswith(classifier) else BATCHNORM_EPS
        if kind == "BatchNorm2d" and eps != built:
            raise UserError(f"layer {where} has eps {brief(eps)}; {built} is built here")
        if kind == "MultiheadAttention" and heads != ATTENTION_HEADS:
            raise UserError(
                f"layer {where} has {brief(heads)} heads; {ATTENTION_HEADS} are built here"
            )


def activation_of(module: Any) -> NamedActivation | None:
    if not is_module(module):
        return None
    slope = module.state.get("negative_slope")
    return NamedActivation(class_name(module), slope if isinstance(slope, float) else None)
