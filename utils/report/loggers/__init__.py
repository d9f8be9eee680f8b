"""Loggers for known packages, by name in --loggers."""

from duet.utils.report.loggers.packages import MlflowLogger, TensorBoardLogger, WandbLogger

LOGGERS = {"tensorboard": TensorBoardLogger, "wandb": WandbLogger, "mlflow": MlflowLogger}
