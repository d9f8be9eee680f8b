"""The examples of docs/en/api.md run as they stand, with files of the names that they use."""

import re

import pytest
from PIL import Image

import backend
from tests.tiny_tasks import write_tiny_classifier, write_tiny_segmenter
from tests.tiny_weights import noise, write_tiny_weights
from utils.files.project import PROJECT

PAGE = (PROJECT / "docs" / "en" / "api.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TORCH_HUB = 'torch.hub.load(".", "custom", '


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Weights and images under the names of the page, in the working folder."""
    write_tiny_weights(tmp_path).rename(tmp_path / "best.safetensors")
    write_tiny_segmenter(tmp_path).rename(tmp_path / "best-seg.safetensors")
    write_tiny_classifier(tmp_path).rename(tmp_path / "best-cls.safetensors")
    (tmp_path / "images").mkdir()
    for name in ("bus.jpg", "images/1.jpg", "images/2.jpg"):
        Image.fromarray(noise(60, 90)).save(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def on_this_backend(block):
    """A block for the hub as users of this backend write it."""
    if backend.use() == "torch":
        return block.replace('load("."', f"load({str(PROJECT)!r}")
    return block.replace("import torch\n", "import hubconf\n").replace(
        f'{TORCH_HUB}path="best.safetensors", source="local")',
        'hubconf.custom("best.safetensors")',
    )


def test_the_examples_run_one_after_the_other(folder, capsys):
    pytest.importorskip("pandas")
    assert len(BLOCKS) == 9 and TORCH_HUB in BLOCKS[-1]
    names = {}
    for block in BLOCKS:
        exec(compile(on_this_backend(block), "docs/en/api.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "--img 100 is no multiple" in printed
    assert "1.jpg" in printed and "2.jpg" in printed
    assert "image 1/2: 60x90 " in printed
    assert sorted(path.name for path in (folder / "drawn").iterdir()) == ["bus.jpg", "image1.jpg"]
    assert names["record"]["height"] == 60
