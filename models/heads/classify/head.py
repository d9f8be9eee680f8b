"""The classification head: image logits from the last feature map, and their loss.

Source: the published description and stored outputs of the public YOLOv5 v6.2 head.
"""

from collections.abc import Sequence

import numpy as np

from duet.backend import ops
from duet.backend.contract import Tensor
from duet.backend.processes import this_process
from duet.models.blocks.registry import ONCE, Cost, LayerPlan, LayerRequest, register
from duet.models.blocks.transformer import Linear
from duet.models.blocks.yolov5 import Conv
from duet.models.heads.base import (
    Head,
    Loss,
    LossSettings,
    LossTerms,
    Pass,
    PassImages,
    WholeBatch,
    batch_parts,
    loss_dtype,
)
from duet.utils.data.image.letterbox import Letterbox
from duet.utils.data.loading.batch import Targets
from duet.utils.data.randomness import Stream, generator_of
from duet.utils.errors import UserError
from duet.utils.evaluation.accuracy import ClassificationEvaluator, ClassificationResult
from duet.utils.geometry.detections import Classification, SuppressionSettings
from duet.utils.tasks import CLASSIFICATION, ClassRows

HIDDEN_CHANNELS = 1280  # for every model size, as in EfficientNet-B0


class HeadConv(Conv):
    """`Conv` with the frameworks' default BatchNorm eps and momentum, as in the stored outputs."""

    eps, momentum = 1e-5, 0.1


def dropout_factors(probability: float, images: PassImages) -> np.ndarray:
    """Return factors (B, 1280) for training: 0, or else 1 / (1 - probability).

    Draws are a function of the seed, batch number and an image's position in the batch: the same
    on both backends, any number of ranks, in pieces and after any resume.
    Source: Srivastava et al. 2014.
    """
    generator = generator_of(Stream.DROPOUT, images.seed, index=images.batch_number)
    drawn = generator.random((images.batch_size, HIDDEN_CHANNELS))[images.places]
    return np.asarray((drawn >= probability) / (1 - probability))


class ClassificationLoss(Loss):
    """Cross-entropy of one class per image, with optional label smoothing.

    The total is the mean over the batch, as in the public recipe, where every batch is an update.
    Smoothing: Szegedy et al. 2016, arXiv:1512.00567, section 7.

    Args:
        label_smoothing: fraction of the target distributed equally over all classes, 0 to 1.
        class_weights: factors of the images of each class; none: all 1.
    """

    def __init__(self, label_smoothing: float = 0.0, class_weights: Sequence[float] = ()) -> None:
        self.label_smoothing, self.class_weights = label_smoothing, class_weights

    def __call__(
        self, raw: Sequence[Tensor], targets: Targets, whole: WholeBatch | None = None
    ) -> LossTerms:
        """Return the loss of a batch or of a piece of it.

        Args:
            raw: ((B, C),) logits.
            targets: one per image; images without a target do not count.
            whole: the batch that this is a piece of; None if it is the whole batch.
        """
        dtype, device = loss_dtype(raw[0]), ops.device_of(raw[0])
        logits = ops.cast(raw[0], dtype)
        own = [logits.shape[0]]
        all_pieces = own if whole is None else [whole.num_images]
        wanted = self._wanted(targets, *logits.shape).astype(dtype)
        parts = batch_parts(own, all_pieces, whole, dtype, device)
        part = None if parts is None else parts.images
        inputs = logits, ops.tensor(wanted, device), part, float(this_process().world_size)
        terms: LossTerms = self._computed(own[0], *inputs)
        return terms

    def _wanted(self, targets: Targets, num_images: int, num_classes: int) -> np.ndarray:
        """Return the target probability of each class, weighted, (B, C) float64."""
        rest = self.label_smoothing / num_classes
        wanted = np.zeros((num_images, num_classes))
        wanted[targets.image_index] = rest
        wanted[targets.image_index, targets.class_index] += 1 - self.label_smoothing
        if self.class_weights:
            weights = np.array(self.class_weights)[targets.class_index]
            wanted[targets.image_index] *= weights[:, None]
        return wanted

    @staticmethod
    def on_device(logits: Tensor, wanted: Tensor, part: Tensor | None, ranks: float) -> LossTerms:
        """Return the mean over the batch that these logits (B, C) are part of, and the total.

        ranks: number of ranks over which gradients are averaged.
        """
        mean = ops.sum(ops.log_softmax(logits) * wanted) * (-1.0 / max(logits.shape[0], 1))
        if part is not None:
            mean = mean * part
        return LossTerms({"classification": mean}, mean * ranks)


@register("Classify")
class ClassifyHead(Head):
    """1x1 convolution, global average pooling, dropout, and a linear layer to C logits."""

    task = CLASSIFICATION
    loss_names = {"classification": "cls"}
    metric_names = {"accuracy_top1": "top1", "accuracy_top5": "top5"}
    passes = (Pass(1.0, mirrored=False), Pass(1.0, mirrored=True))
    # ImageNet statistics (red, green, blue), as used by the public classifiers.
    image_mean = (0.485, 0.456, 0.406)
    image_std = (0.229, 0.224, 0.225)

    def __init__(self, num_classes: int, in_channels: int, stride: int) -> None:
        super().__init__()
        self.num_classes, self.strides = num_classes, (stride,)
        self.nothing_found = Classification(np.zeros((0, num_classes), np.float32))
        self.conv = HeadConv(in_channels, HIDDEN_CHANNELS)
        self.linear = Linear(HIDDEN_CHANNELS, num_classes)
        self._factors: Tensor | None = None  # of dropout, for the images of the current pass

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [nc]."""
        if len(request.args) != 1:
            raise UserError("accepted args: [nc]")
        (num_classes,) = request.args
        in_channels, stride = request.in_channels[0], request.in_strides[0]
        convolution = Conv.cost(in_channels, HIDDEN_CHANNELS)
        product = Cost(HIDDEN_CHANNELS * num_classes, biases=num_classes)
        return LayerPlan(
            lambda: cls(num_classes, in_channels, stride),
            HIDDEN_CHANNELS,
            stride,
            ((stride, convolution), (ONCE, product)),
        )

    def forward(self, *maps: Tensor) -> tuple[Tensor, ...]:
        """Map (B, in, H, W) to logits ((B, C),)."""
        means = ops.mean(ops.mean(self.conv(maps[0]), 3), 2)
        if self.training and self._factors is not None:
            means = means * self._factors
        return (self.linear(means),)

    def draw(self, images: PassImages) -> None:
        if self.dropout:
            weight = self.linear.weight
            factors = dropout_factors(self.dropout, images).astype(ops.dtype_of(weight))
            self._factors = ops.tensor(factors, ops.device_of(weight))

    def class_rows(self) -> ClassRows:
        return ClassRows(("linear.",))

    def make_loss(self, settings: LossSettings) -> ClassificationLoss:
        return ClassificationLoss(settings.label_smoothing, settings.gains.class_weights)

    def decode(self, raw: Sequence[Tensor]) -> Tensor:
        """Map logits to class probabilities, (B, C)."""
        return ops.softmax(raw[0])

    def decode_above(
        self, raw: Sequence[Tensor], settings: SuppressionSettings
    ) -> list[np.ndarray]:
        """Return the scores of all classes, (1, C) per image; the settings are ignored."""
        return [row[None] for row in ops.to_numpy(self.decode(raw))]

    def join_passes(
        self, raw: Sequence[Sequence[Tensor]], width: int, settings: SuppressionSettings
    ) -> list[np.ndarray]:
        """Return the mean scores over all passes, (1, C) per image."""
        scores = np.stack([ops.to_numpy(self.decode(one)) for one in raw])
        return [row[None] for row in scores.mean(axis=0)]

    def finish_images(
        self,
        decoded: Sequence[np.ndarray],
        places: Sequence[Letterbox],
        settings: SuppressionSettings,
    ) -> list[Classification]:
        return list(map(Classification, decoded))

    def make_evaluator(self, class_names: Sequence[str]) -> ClassificationEvaluator:
        return ClassificationEvaluator(class_names)

    @staticmethod
    def class_scores(result: ClassificationResult) -> tuple[float, ...]:
        """Return top-1 accuracy per class; for classes without images, that over all images."""
        of_class = result.class_top1
        return tuple(np.where(np.isnan(of_class), result.top1, of_class).tolist())
