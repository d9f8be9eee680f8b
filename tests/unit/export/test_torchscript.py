"""TorchScript files: run where the backend can, refused by name where it cannot."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duet.backend import device, nn, ops
from duet.utils.errors import UserError
from duet.utils.export.converters import TorchScriptRuntime
from duet.utils.export.metadata import metadata_as_json
from tests.onnx_files import METADATA, random_images, rows_of

supported = pytest.mark.skipif(not device.supports("torchscript"), reason="PyTorch's alone")


class Doubling(nn.Module):
    def forward(self, images: Any) -> Any:
        return (images * 2.0).reshape(1, -1, 6)


def written(path: Path, text: str) -> Path:
    example = ops.tensor(np.zeros((1, 3, 32, 32), np.float32))
    path.write_bytes(nn.to_torchscript(Doubling().eval(), example, text))
    return path


@supported
def test_torchscript_matches_the_module_and_its_metadata(tmp_path):
    path = written(tmp_path / "a.torchscript", metadata_as_json(METADATA))
    runtime, images = TorchScriptRuntime(path), random_images()
    (found,) = runtime(images)
    np.testing.assert_array_equal(found, rows_of(images))
    assert runtime.metadata == METADATA
    assert runtime.name.startswith("TorchScript, PyTorch")


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"text" * 1000])
def test_damaged_file_is_a_clear_error(tmp_path, content):
    path = tmp_path / "a.torchscript"
    path.write_bytes(content)
    with pytest.raises(UserError, match="damaged, or it holds no metadata"):
        TorchScriptRuntime(path)


def test_file_of_another_exporter_is_recognised(tmp_path):
    path = tmp_path / "a.torchscript"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/extra/config.txt", '{"stride": 32, "names": ["a"]}')
    with pytest.raises(UserError, match="another program exported it, without our metadata"):
        TorchScriptRuntime(path)


def test_unloadable_program_is_refused(tmp_path):
    """By PyTorch, which finds metadata alone, or by a backend that has no TorchScript."""
    path = tmp_path / "a.torchscript"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/extra/metadata.json", metadata_as_json(METADATA))
    runtime = TorchScriptRuntime(path)
    assert runtime.metadata == METADATA
    message = (
        "PyTorch cannot read the file as Torch"
        if device.supports("torchscript")
        else "which only one backend has; give --backend torch"
    )
    with pytest.raises(UserError, match=message):
        runtime(random_images())
