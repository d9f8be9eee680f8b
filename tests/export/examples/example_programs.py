"""The examples of docs/examples/export, run as a user runs them."""

from __future__ import annotations

import io
import mimetypes
import os
import runpy
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.browser.chromium import Page, chromium
from tests.browser.install import WEB_RUNTIME, WEB_RUNTIME_FILES
from tests.browser.npm import installed_folder
from tests.unit.data.fetch.loopback_site import loopback_site
from utils.files.project import PROJECT

EXAMPLES = PROJECT / "docs" / "examples" / "export"
PYTHON = EXAMPLES / "python" / "onnx_detect.py"
PYTHON_NMS = EXAMPLES / "python" / "onnx_detect_nms.py"
SECONDS = 60  # a limit against hanging
NO_COMPILER = "c++, cmake and the package openvino are needed to build the example in C++"
NO_WEB_RUNTIME = "no onnxruntime-web: python3 -m tests.browser.install"


def run_python(script: Path, *files: Path) -> str:
    """What a script prints; in this process, whose imports it need not wait for."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setattr("sys.argv", [str(script), *map(str, files)])
        runpy.run_path(str(script), run_name="__main__")
    return printed.getvalue()


def build_program(folder: Path) -> Path:
    """The program in C++; without a compiler the test is skipped, or fails: REQUIRE_COMPILER=1."""
    openvino = find_spec("openvino")
    if not (shutil.which("c++") and shutil.which("cmake") and openvino and openvino.origin):
        if os.environ.get("REQUIRE_COMPILER") == "1":
            pytest.fail(NO_COMPILER)
        pytest.skip(NO_COMPILER)
    configuration = Path(openvino.origin).parent / "cmake"  # what get_cmake_path() returns
    for words in (
        ["-S", EXAMPLES / "cpp", "-B", folder, "-D", f"OpenVINO_DIR={configuration}",
         "-D", "CMAKE_BUILD_TYPE=Debug", "-D", "CMAKE_CXX_FLAGS=-Wall -Wextra -Werror"],
        ["--build", folder],
    ):  # fmt: skip
        done = subprocess.run(["cmake", *words], capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "detect"


def run_program(program: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *files], capture_output=True, text=True, timeout=SECONDS)


@contextmanager
def example_page() -> Iterator[ExamplePage]:
    """The page in a browser, from a site that has nothing else than its folder."""
    runtime = installed_folder(WEB_RUNTIME.name, WEB_RUNTIME)
    if not runtime.exists():
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail(NO_WEB_RUNTIME)
        pytest.skip(NO_WEB_RUNTIME)
    files = {f"/{name}": EXAMPLES / "browser" / name for name in ("index.html", "detect.js")}
    modules = "/node_modules/onnxruntime-web/dist"
    files |= {f"{modules}/{name}": runtime / name for name in WEB_RUNTIME_FILES}
    with chromium() as page, loopback_site() as site:
        for address, path in files.items():
            site.put(address, path.read_bytes())
            site.types[address] = mimetypes.guess_type(path.name)[0] or ""
        yield ExamplePage(page, f"{site.root}/index.html")


class ExamplePage:
    """The page, and what a user does with it."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.site = address.split("/")[2]
        self.chosen: dict[str, Path] = {}

    def open(self, width: int = 1100, dark: bool = False) -> None:
        self.chosen.clear()
        self.page.open(self.address, width, dark=dark)

    def choose(self, kind: str, path: Path) -> str:
        """Choose a file for the input of a kind: "model" or "picture"; returns the status."""
        if self.chosen.get(kind) == path:
            return self.text("status")  # to choose a file again is no change
        self.chosen[kind] = path
        self.page.evaluate("document.getElementById('status').textContent = ''")
        self.page.choose_file(f"#{kind}", path)
        return self.wait()

    def wait(self) -> str:
        """The status once nothing is being done."""
        deadline = time.monotonic() + SECONDS
        while True:
            status = self.text("status")
            if status and "…" not in status:
                return status
            assert time.monotonic() < deadline, (status, self.page.complaints())
            time.sleep(0.02)

    def text(self, name: str) -> str:
        return self.page.evaluate(f"document.getElementById('{name}').textContent")
