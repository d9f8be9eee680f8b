"""Settings of the training recipe: the group "recipe" of train.py's flags."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from duet.utils.cli.flags import flag, require_apart, require_fraction, whole_from, within
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, Hyperparameters
from duet.utils.cli.run_config import RunConfig
from duet.utils.strengths import AugmentConfig

MAX_SEED = 2**63 - 1
OPTIMIZERS = ("SGD", "Adam", "AdamW")
require_seed = whole_from(0, MAX_SEED)
LARGEST_MASK_RATIO = 32  # leaves one pixel of the smallest --img
APART = (
    ("rect", "image_weights", "--rect orders the images by aspect ratio"),
    ("rect", "close_mosaic", "--rect makes no mosaics"),
    ("multi_scale", "compile", "each size would be recompiled"),
    ("rect", "compile", "each shape would be recompiled"),
)


@dataclass(frozen=True)
class RecipeConfig(RunConfig):
    """Settings of the training recipe, apart from the hyper-parameters."""

    hyp: Path = flag("recipe", "--hyp", default=DEFAULT_HYPERPARAMETERS,
        help="hyper-parameter YAML, or a name in data/hyps such as small")  # fmt: skip
    epochs: int = flag("recipe", "--epochs", "--epoch", default=100, metavar="N",
        check=whole_from(1), help="number of epochs")  # fmt: skip
    seed: int = flag("recipe", "--seed", default=0, check=require_seed,
        help="random seed of weights, order and augmentation")  # fmt: skip
    cosine: bool = flag("recipe", "--cos-lr", default=False,
        help="cosine instead of linear learning rate schedule")  # fmt: skip
    optimizer: str = flag("recipe", "--optimizer", default="SGD", choices=OPTIMIZERS,
        help="optimizer; for Adam and AdamW the momentum of --hyp is beta1")  # fmt: skip
    override: tuple[str, ...] = flag("recipe", "--override", default=(), type=str, nargs="+",
        metavar="KEY=VALUE", help="hyper-parameters that replace those of --hyp")  # fmt: skip
    patience: int = flag("recipe", "--patience", default=100, metavar="N", check=whole_from(0),
        help="stop after this many epochs without a better one; 0: never")  # fmt: skip
    hours: float = flag("recipe", "--time", default=0.0, metavar="HOURS",
        check=within(0, kind="a number of hours"),
        help="stop after the epoch in which the epochs have taken this many hours in all; the "
        "learning rate still follows --epochs; 0: never")  # fmt: skip
    label_smoothing: float = flag("recipe", "--label-smoothing", default=0.0, metavar="F",
        check=require_fraction, help="label smoothing of the class targets")  # fmt: skip
    mask_ratio: int = flag("recipe", "--mask-ratio", default=4, metavar="N",
        check=whole_from(1, LARGEST_MASK_RATIO),
        help="segmentation: how many times smaller than the images the masks are")  # fmt: skip
    no_overlap: bool = flag("recipe", "--no-overlap", default=False,
        help="segmentation: one mask per object, whole even where others cover it")  # fmt: skip
    dropout: float = flag("recipe", "--dropout", default=0.0, metavar="P",
        check=within(0, 1, below=True),
        help="dropout probability before the last layer of a classifier")  # fmt: skip
    autobalance: bool = flag("recipe", "--autobalance", default=False,
        help="balance the objectness losses of the levels by their size")  # fmt: skip
    no_auto_anchor: bool = flag("recipe", "--noautoanchor", default=False,
        help="keep the anchors of --cfg or --weights, even if they fit the labels "
        "badly")  # fmt: skip
    multi_scale: bool = flag("recipe", "--multi-scale", default=False,
        help="draw the image size of each batch between 0.5 and 1.5 times --img")  # fmt: skip
    rect: bool = flag("recipe", "--rect", default=False,
        help="rectangular batches of images with similar aspect ratios; no mosaics, no "
        "shuffling")  # fmt: skip
    single_class: bool = flag("recipe", "--single-cls", default=False,
        help="treat all objects as one class")  # fmt: skip
    image_weights: bool = flag("recipe", "--image-weights", default=False,
        help="show images more often if their classes are detected badly")  # fmt: skip
    fraction: float = flag("recipe", "--fraction", default=1.0, metavar="F",
        check=within(0, 1, above=True), help="train on this fraction of the images")  # fmt: skip
    close_mosaic: int = flag("recipe", "--close-mosaic", default=0, metavar="N",
        check=whole_from(0), help="no mosaics and no mixup in the last N epochs")  # fmt: skip
    albumentations: float = flag("recipe", "--albumentations", default=0.0, nargs="?", const=0.01,
        metavar="P", check=require_fraction, help="probability of each of Blur, MedianBlur, ToGray "
        "and CLAHE; without P: 0.01, as in YOLOv5")  # fmt: skip
    evolve: int = flag("recipe", "--evolve", default=0, nargs="?", const=300, metavar="N",
        check=whole_from(0), help="search hyper-parameters with Optuna in N trainings (without N: "
        "300); the same command continues a search")  # fmt: skip
    storage: str = flag("recipe", "--storage", default="", metavar="F",
        help="file of the search of --evolve, which several machines may share; default: one in "
        "its folder")  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        require_apart(self, APART)

    def augmentation(self, hyp: Hyperparameters) -> AugmentConfig:
        """Return the augmentation settings, including transforms and the epochs with mosaics."""
        last = self.close_mosaic
        return dataclasses.replace(
            hyp.augmentation(),
            transforms=self.albumentations,
            mosaic_epochs=max(self.epochs - last, 0) if last else None,
        )
