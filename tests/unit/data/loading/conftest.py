"""The samples of most tests of the loaders."""

import pytest

from duet.utils.data.shapes.dataset import ShapesConfig, draw_dataset
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.samples import SampleTable
from duet.utils.data.sources.splits import load_split


@pytest.fixture(scope="session")
def samples(tmp_path_factory) -> SampleTable:
    """Drawn images with outlines, 22 of at most 80 pixels."""
    config = ShapesConfig(22, 1, image_side=80, outlines=True)
    folder = tmp_path_factory.mktemp("data") / "shapes"
    return load_split(load_dataset(draw_dataset(folder, config)), "train")
