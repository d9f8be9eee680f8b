"""One server of three tasks for all tests that only ask it something."""

import dataclasses

import pytest

HOSTILE = "<img src=x onerror=document.title='hit'>\u202e\"'&amp;"
TOKENS = ("0123456789abcdef", "another-token-of-a-client==")
MAX_BYTES = 100_000
MAX_PIXELS = 70_000


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    """Files of a detector, a segmenter, a classifier and an anchor-free one, by model name."""
    from tests.tiny_weights import (
        tiny_segmenter,
        write_checkpoint,
        write_tiny_classifier,
        write_tiny_free_weights,
        write_tiny_weights,
    )

    folder = tmp_path_factory.mktemp("weights")
    masks = tiny_segmenter(folder)
    header = dataclasses.replace(masks.header, class_names=(HOSTILE, *"abcd"))
    masks = dataclasses.replace(masks, header=header)
    return {
        "day": write_tiny_weights(folder),
        "masks": write_checkpoint(
            folder / "masks.safetensors", dataclasses.replace(masks, header=header)
        ),
        "kinds": write_tiny_classifier(folder),
        "free": write_tiny_free_weights(folder),
    }


@pytest.fixture(scope="session")
def server(weights):
    from tests.unit.serve.running import running

    models = [f"{name}={path}" for name, path in weights.items()]
    limits = ["--max-bytes", MAX_BYTES, "--max-pixels", MAX_PIXELS]
    with running("--weights", *models, *limits) as found:
        yield found


@pytest.fixture(scope="session")
def guarded(weights, tmp_path_factory):
    """A server that other machines may ask, with a token."""
    from tests.unit.serve.running import running

    file = tmp_path_factory.mktemp("tokens") / "tokens"
    file.write_text("\n".join(TOKENS) + "\n")
    with running("--weights", weights["day"], "--token-file", file, "--host", "0.0.0.0") as found:
        yield found
