"""Optional packages: imported, or named with the command that installs them."""

import importlib
import os
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

from duet.utils import optional
from duet.utils.errors import UserError
from duet.utils.optional import EXTRAS, import_optional, install_command
from duet.utils.project import PROJECT, STAMP


def without(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Play an environment that lacks a package, as Python's import system does."""
    monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("name", EXTRAS)
def test_installed_package_is_imported(name):
    assert import_optional(name, "a test") is importlib.import_module(name)


def test_absent_package_error_names_its_install_command(monkeypatch):
    without(monkeypatch, "pandas")
    with pytest.raises(UserError) as error:
        import_optional("pandas", "--some-flag")
    assert str(error.value) == f"--some-flag needs pandas; install it: {install_command('pandas')}"


@pytest.mark.parametrize("name", ["oneflow", "oneflow-3.10.13-47e19f80"])
def test_make_environment_installs_extras_from_its_locks(tmp_path, monkeypatch, name):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / name))
    (tmp_path / name).mkdir()
    (tmp_path / name / STAMP).touch()
    command = f"make --directory {PROJECT} setup BACKEND=oneflow WITH=extras"
    assert {install_command(name) for name in EXTRAS} == {command}
    assert install_command("pnnx").startswith("pip install pnnx==")


@pytest.mark.parametrize("checkout", [True, False])
def test_pip_installs_the_extra_of_the_package_elsewhere(tmp_path, monkeypatch, checkout):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(optional, "PROJECT", tmp_path)
    if checkout:
        (tmp_path / "pyproject.toml").touch()
    source = f"-e '{tmp_path}" if checkout else "'duet-detect"
    assert install_command("trackers") == f"pip install {source}[track]'"


def test_every_extra_contains_its_packages():
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = toml.loads((PROJECT / "pyproject.toml").read_text())["project"]
    for module, extra in EXTRAS.items():
        asked = {Requirement(line).name for line in project["optional-dependencies"][extra]}
        assert module.lower().replace("_", "-") in asked


def test_submodule_import_error_names_the_package(monkeypatch):
    assert import_optional("av.video", "a test").__name__ == "av.video"
    without(monkeypatch, "av.video")
    with pytest.raises(UserError, match=r"a test needs av .*av\.video.*: .+"):
        import_optional("av.video", "a test")


def test_error_names_the_missing_dependency(monkeypatch):
    without(monkeypatch, "scipy")
    for module in [name for name in sys.modules if name.partition(".")[0] == "trackers"]:
        monkeypatch.delitem(sys.modules, module)
    for module in [name for name in sys.modules if name.startswith("scipy.")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(UserError, match=r"--track needs trackers \(.*scipy.*\); install it: .+"):
        import_optional("trackers", "--track")


OFFLINE = """
import importlib, socket, sys
def refuse(*arguments, **named): raise AssertionError(f"network: {arguments}")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
for name in sys.argv[1:]: importlib.import_module(name)
"""


def test_imports_use_no_network_and_print_nothing(tmp_path):
    command = [sys.executable, "-W", "error", "-c", OFFLINE, *EXTRAS]
    quiet = {**os.environ, "HOME": str(tmp_path)}  # openvino writes there
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


RUNTIMES = {
    "openvino": 'import_optional("openvino", "a test").Core()',
    "onnxruntime": 'import_optional("onnxruntime", "a test").InferenceSession(model, None, cpu)',
    "backend": 'use("onnx"); import onnxruntime; onnxruntime.InferenceSession(model, None, cpu)',
    "program": 'run_program([sys.executable, "-c", "import onnxruntime"], Path.home().parent)',
}
USE = (
    OFFLINE.partition("for name")[0]
    + """
import os
from pathlib import Path
from onnx import TensorProto, helper
from duet.backend import use
from duet.utils.optional import import_optional, run_program
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
opsets = [helper.make_opsetid("", 17)]
model = helper.make_model(graph, ir_version=8, opset_imports=opsets).SerializeToString()
cpu, before = ["CPUExecutionProvider"], dict(os.environ)
%s
assert not [name for name in sys.modules if name.startswith("openvino_telemetry")]
after = {name: x for name, x in os.environ.items() if name != "GOMP_SPINCOUNT"}
assert after == before, after.items() ^ before.items()
"""
)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_runtime_sends_no_telemetry(tmp_path, runtime):
    """Left to themselves they write an ID into the home folder and send events to their makers."""
    ours = ("CI", "ORT_DISABLE_TELEMETRY", "GOMP_SPINCOUNT")
    home = {name: x for name, x in os.environ.items() if name not in ours}
    command = [sys.executable, "-c", USE % RUNTIMES[runtime]]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=PROJECT,
        env={**home, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert not list(tmp_path.iterdir())
