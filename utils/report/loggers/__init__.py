"""Loggers for known packages, by name in --loggers."""

from duet.utils.report.loggers.packages import TensorBoardLogger, WandbLogger

LOGGERS = {"tensorboard": TensorBoardLogger, "wandb": WandbLogger}
