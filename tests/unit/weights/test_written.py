"""Files that the frameworks themselves write, each in its own environment, read without it."""

import importlib
import shutil
import sys
import types
import zipfile

import numpy as np
import pytest
import yaml

from duet import backend
from duet.backend import nn
from duet.models.detector import Detector
from duet.models.graph import parse_model
from duet.models.stored import load_detector
from duet.utils.errors import UserError
from duet.utils.weights.load import load_weights
from tests.foreign_files import PublicModel

of_torch, of_oneflow = (
    pytest.mark.skipif(backend.use() != name, reason="each save is judged where it is")
    for name in ("torch", "oneflow")
)
CLASS_NAMES = ["cat", "dog", "Kuh ü"]
# The backbone of v5: Focus, SPP, then C3 without shortcut.
V5_BACKBONE = [
    [-1, 1, "Focus", [64, 3]],
    [-1, 1, "Conv", [128, 3, 2]],
    [-1, 3, "C3", [128]],
    [-1, 1, "Conv", [256, 3, 2]],
    [-1, 6, "C3", [256]],
    [-1, 1, "Conv", [512, 3, 2]],
    [-1, 9, "C3", [512]],
    [-1, 1, "Conv", [1024, 3, 2]],
    [-1, 1, "SPP", [1024, [5, 9, 13]]],
    [-1, 3, "C3", [1024, False]],
]


class YoloModules:
    """A detector as modules of the public YOLOv5's names, for a framework to pickle.

    The classes are empty: what makes a file one of YOLOv5 is the names, the attributes and the
    tree, which are those of `PublicModel`.
    """

    def __init__(self, framework, monkeypatch):
        self.framework, self.monkeypatch = importlib.import_module(framework), monkeypatch
        self.places = {}

    def model(self, arrays, document, **changes):
        return self.module(PublicModel(self.framework, arrays, document, **changes).root())

    def module(self, record):
        own = self.empty(record.name)
        state = {**record.state, "_parameters": {}}
        for name, tensor in state.pop("_buffers").items():
            if name in ("weight", "bias"):
                own.register_parameter(name, self.framework.nn.Parameter(tensor))
            else:
                own.register_buffer(name, tensor)
        for name, child in state.pop("_modules").items():
            own.add_module(name, self.module(child))
        for name in state.keys() - {"_parameters"}:
            setattr(own, name, state[name])
        return own

    def empty(self, name):
        """Return a module without tensors, of the framework or of `yolo_class`."""
        if name.startswith("models."):
            return self.yolo_class(name)()
        kind = getattr(self.framework.nn, name.rpartition(".")[2])
        module = kind(*{"Conv2d": (1, 1, 1), "BatchNorm2d": (1,)}.get(kind.__name__, ()))
        module._parameters.clear()
        module._buffers.clear()
        return module

    def yolo_class(self, name):
        """Return the class of a name such as models.common.Conv, which pickle can import."""
        place, _, own = name.rpartition(".")
        if place not in self.places:
            self.places[place] = types.ModuleType(place)
            self.monkeypatch.setitem(sys.modules, place, self.places[place])
        made = type(own, (self.framework.nn.Module,), {"__module__": place})
        return vars(self.places[place]).setdefault(own, made)


@pytest.fixture(params=["v6", "v5"])
def narrow(request):
    """(document, float32 state) of a YOLOv5 of an eighth of the width."""
    with open("models/yolov5n.yaml", encoding="utf-8") as file:
        document = {**yaml.safe_load(file), "nc": len(CLASS_NAMES), "width_multiple": 0.125}
    if request.param == "v5":
        document["backbone"] = V5_BACKBONE
    model = Detector(parse_model(document))
    model.initialize(3)
    state = nn.state_arrays(model)
    state["model.24.anchors"] = state["model.24.anchors"] + 0.5  # as autoanchor leaves them
    return document, state


def write_checkpoint(monkeypatch, narrow, save, half, kind="DetectionModel"):
    document, state = narrow
    modules = YoloModules(backend.use(), monkeypatch)
    own = {"kind": f"models.yolo.{kind}", "names": CLASS_NAMES, "hyp": {"lr0": 0.01}}
    model = modules.model(state, document, strides=(8, 16, 32), nc=len(CLASS_NAMES), **own)
    save(modules.framework, {
        "epoch": 7, "best_fitness": np.array([0.5]), "model": None, "updates": 12,
        "ema": model.half() if half else model, "optimizer": None, "date": "2026-01-01",
    })  # fmt: skip


def assert_carried_over(path, narrow, half):
    _, state = narrow
    checkpoint = load_weights(path)
    expected = {
        name: array.astype(np.float16).astype(np.float32)
        if half and array.dtype == np.float32
        else array
        for name, array in state.items()
    }
    assert list(checkpoint.ema) == list(expected)
    for name, array in expected.items():
        assert np.array_equal(checkpoint.ema[name], array), name
    header = checkpoint.header
    assert (header.epoch, header.class_names) == (8, tuple(CLASS_NAMES))
    assert header.hyperparameters == {"lr0": 0.01}
    built = nn.state_arrays(load_detector(checkpoint, "cpu"))
    assert np.array_equal(built["model.24.anchors"], expected["model.24.anchors"])


@of_torch
@pytest.mark.parametrize(
    ("options", "kind", "half"),
    [({}, "DetectionModel", True), ({"pickle_protocol": 5}, "Model", False)],
)
def test_torch_files_of_each_kind_are_read(tmp_path, monkeypatch, narrow, options, kind, half):
    path = tmp_path / "written.pt"

    def save(torch, document):
        torch.save(document, path, **options)

    write_checkpoint(monkeypatch, narrow, save, half, kind)
    assert_carried_over(path, narrow, half)


@of_torch
def test_torch_state_dict_of_every_dtype_is_read(tmp_path):
    torch = importlib.import_module("torch")
    values = np.array([[1.5, -2.0, 0.0], [3.25, 0.125, -8.0]], np.float32)
    names = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8"]
    state = {name: torch.tensor(values).to(getattr(torch, name)) for name in names}
    state |= {"uint8": torch.tensor([7, 255], dtype=torch.uint8), "bool": torch.tensor([True])}
    state |= {"turned": torch.tensor(values).t(), "part": torch.tensor(values)[1:, 1:]}
    path = tmp_path / "state.pt"
    torch.save(state, path)
    found = load_weights(path).ema
    for name in names:
        expected = values.astype(name) if name.startswith("int") else values
        assert found[name].dtype == expected.dtype and np.array_equal(found[name], expected), name
    assert found["uint8"].tolist() == [7, 255] and found["bool"].tolist() == [True]
    assert np.array_equal(found["turned"], values.T)
    assert np.array_equal(found["part"], values[1:, 1:])


@of_torch
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "uint16"])
def test_unsupported_dtype_is_named(tmp_path, dtype):
    torch = importlib.import_module("torch")
    path = tmp_path / "state.pt"
    torch.save({"weight": torch.zeros(4).to(getattr(torch, dtype))}, path)
    with pytest.raises(UserError, match=rf"state.pt: tensors of the type torch.{dtype}, which is"):
        load_weights(path)


@of_oneflow
def test_oneflow_directories_are_read_zipped_or_not(tmp_path, monkeypatch, narrow):
    half = True  # as One-YOLOv5 saves; float32 is in the test below
    folder = tmp_path / "yolov5n.of"
    write_checkpoint(
        monkeypatch, narrow, lambda oneflow, document: oneflow.save(document, str(folder)), half
    )
    assert_carried_over(folder, narrow, half)
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "yolov5n.of")
    assert_carried_over(archive, narrow, half)
    flat = shutil.make_archive(str(tmp_path / "flat"), "zip", folder)
    assert_carried_over(flat, narrow, half)


@of_oneflow
def test_damaged_oneflow_directory_is_refused(tmp_path):
    oneflow = importlib.import_module("oneflow")
    folder = tmp_path / "state"
    oneflow.save({"weight": oneflow.ones(2, 3)}, str(folder))
    assert load_weights(folder).ema["weight"].tolist() == [[1, 1, 1], [1, 1, 1]]
    tensor = next(path for path in folder.iterdir() if path.is_dir())
    for name, data in (
        ("out", b"\x00" * 20),
        ("out", b"\x00" * 28),
        ("meta", b"shape {\n  dim: 99999999999\n  dim: 99999999999\n}\ndata_type: kFloat\n"),
        ("meta", b"shape {\n  dim: 2\n  dim: 3\n}\ndata_type: kString\n"),
        ("meta", b""),
    ):
        kept = (tensor / name).read_bytes()
        (tensor / name).write_bytes(data)
        with pytest.raises(ValueError, match="--weights .*state: "):
            load_weights(folder)
        (tensor / name).write_bytes(kept)
    pickled = (folder / "pickled_data").read_bytes()
    hostile = pickled.replace(tensor.name.encode(), b"../x".ljust(len(tensor.name), b"x"))
    (folder / "pickled_data").write_bytes(hostile)
    with pytest.raises(ValueError, match="accepted: a plain name"):
        load_weights(folder)
    assert not zipfile.is_zipfile(folder / "pickled_data")
