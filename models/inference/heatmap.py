"""Heat maps: which cells of a layer's feature map carry most of what the network sees.

Source: Muhammad and Yeasin 2020, Eigen-CAM, arXiv:2008.00299. It needs no gradients and no class.
"""

from typing import Any

import cv2
import numpy as np

from duet.backend import ops
from duet.models.detector import Detector
from duet.models.inference.predictors import Augmented, Predictor, network_input
from duet.utils.data.image.letterbox import View
from duet.utils.errors import UserError

BEFORE_HEAD = -1  # the last layer before the head


def layer_number(predictor: Predictor, layer: int) -> int:
    """Return the index of --visualize LAYER; UserError for a predictor without such a map."""
    model = inner_model(predictor)
    last = len(model.spec.layers) - 2
    number = last if layer == BEFORE_HEAD else layer
    if not 0 <= number <= last:
        raise UserError(f"--visualize {layer}; the model has layers 0 to {last} before its head")
    return number


def inner_model(predictor: Predictor) -> Detector:
    """Return the model whose layers can be run one by one; UserError if there is none."""
    if isinstance(predictor, Augmented):
        return inner_model(predictor.model)
    if not isinstance(predictor, Detector):
        raise UserError(
            "--visualize needs the layers of one model in float32: exported files keep only their "
            "outputs; give one .safetensors or .pt file, without --half"
        )
    return predictor


def heatmap_of(
    predictor: Predictor, view: View, size: tuple[int, int], layer: int, device: str
) -> np.ndarray:
    """Return the heat map of a view, (H, W) float32 in [0, 1] over the image; 0 outside the view.

    Args:
        size: (H, W) of the image.
        layer: index of the layer, from `layer_number`.
    """
    model = inner_model(predictor)
    images: Any = network_input(model, view.pixels.transpose(2, 0, 1)[None], device)
    output = next(x for index, x in enumerate(model.run_layers(images)) if index == layer)
    heat = eigen_cam(ops.to_numpy(ops.cast(output, "float32"))[0])
    (height, width), (top, left) = view.placement.resized_size, view.placement.padding
    over_input = cv2.resize(heat, view.placement.input_size[::-1], interpolation=cv2.INTER_LINEAR)
    part = over_input[top : top + height, left : left + width]
    x1, y1, x2, y2 = view.region_xyxy
    whole = np.zeros(size, np.float32)
    whole[y1:y2, x1:x2] = cv2.resize(part, (x2 - x1, y2 - y1), interpolation=cv2.INTER_LINEAR)
    return whole


def eigen_cam(maps: np.ndarray) -> np.ndarray:
    """Project a feature map (C, h, w) on its first principal component, (h, w) in [0, 1].

    A component has no sign: its largest value is made positive.
    """
    flat = maps.reshape(len(maps), -1).astype(np.float64)
    _, vectors = np.linalg.eigh(flat @ flat.T)  # ascending: the last is the first component
    heat = vectors[:, -1] @ flat
    heat = np.maximum(heat if heat.max() >= -heat.min() else -heat, 0)
    largest = heat.max(initial=0)
    return (heat / (largest or 1)).reshape(maps.shape[1:]).astype(np.float32)
