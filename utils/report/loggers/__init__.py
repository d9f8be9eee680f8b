"""Loggers of known packages, by their names in --loggers."""

from duet.utils.report.loggers.packages import TensorBoardLogger, WandbLogger

LOGGERS = {"tensorboard": TensorBoardLogger, "wandb": WandbLogger}
