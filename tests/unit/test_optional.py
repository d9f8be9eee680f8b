"""Optional packages: imported, or named with the command that installs them."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys

import pytest

from duet.utils.errors import UserError
from duet.utils.optional import INSTALL, import_optional
from duet.utils.project import PROJECT

PINS = PROJECT / "requirements" / "optional.in"
# 25 packages each, and one that is archived: their users install them.
LEFT_TO_USERS = {"albumentations", "mlflow", "wandb"}
# Converters and runtimes of single formats of export.py: their users install them too.
CONVERTERS = {"ai_edge_litert", "coremltools", "cuda", "ncnn", "onnx2tf", "pnnx", "tensorrt"}
PINNED = [name for name in INSTALL if name not in LEFT_TO_USERS | CONVERTERS]


def without(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Play an environment that lacks a package, as Python's import system does."""
    monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("name", PINNED)
def test_a_package_that_is_there_is_imported(name):
    assert import_optional(name, "a test") is importlib.import_module(name)


@pytest.mark.parametrize("name", ["av", "supervision", "pandas", "mss"])
def test_an_absent_package_is_named_with_its_version_and_command(monkeypatch, name):
    without(monkeypatch, name)
    version = re.search(rf"^{name}==(\S+)", PINS.read_text(), re.MULTILINE)[1]
    with pytest.raises(UserError) as error:
        import_optional(name, "--some-flag")
    assert str(error.value) == f"--some-flag needs {name}: pip install {name}=={version}"


def test_a_module_of_a_package_is_imported_and_the_package_is_named(monkeypatch):
    assert import_optional("av.video", "a test").__name__ == "av.video"
    without(monkeypatch, "mss.base")
    with pytest.raises(UserError, match=r"a test needs mss .*mss\.base.*: pip install mss=="):
        import_optional("mss.base", "a test")


def test_trackers_is_installed_without_the_opencv_that_it_asks_for(monkeypatch):
    """opencv-python has the files of opencv-python-headless, and other pixels."""
    without(monkeypatch, "trackers")
    with pytest.raises(UserError) as error:
        import_optional("trackers", "--track")
    command = "pip install --no-deps -r requirements/optional.in"
    assert str(error.value) == f"--track needs trackers: {command}"


def test_a_package_that_lacks_another_says_which(monkeypatch):
    without(monkeypatch, "scipy")
    for module in [name for name in sys.modules if name.partition(".")[0] == "trackers"]:
        monkeypatch.delitem(sys.modules, module)
    for module in [name for name in sys.modules if name.startswith("scipy.")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(UserError, match=r"--track needs trackers \(.*scipy.*\): pip install "):
        import_optional("trackers", "--track")


OFFLINE = """
import importlib, socket, sys
def refuse(*arguments, **named): raise AssertionError(f"network: {arguments}")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
for name in sys.argv[1:]: importlib.import_module(name)
"""


def test_imports_use_no_network_and_print_nothing(tmp_path):
    command = [sys.executable, "-W", "error", "-c", OFFLINE, *PINNED]
    quiet = {**os.environ, "HOME": str(tmp_path)}  # openvino writes into the home folder
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


OPENVINO = (
    OFFLINE.partition("for name")[0]
    + """
from duet.utils.optional import import_optional
import_optional("openvino", "a test").Core()
assert not [name for name in sys.modules if name.startswith("openvino_telemetry")]
"""
)


def test_openvino_tells_nobody_that_it_is_imported(tmp_path):
    """Left to itself it writes an id into the home folder and sends an event."""
    home = {**os.environ, "HOME": str(tmp_path)}
    command = [sys.executable, "-c", OPENVINO]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env=home, cwd=PROJECT
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert not list(tmp_path.iterdir())
