"""Heads, one folder a task: importing this registers all of them for model YAMLs."""

import models.heads.anchor.head  # noqa: F401
import models.heads.classify.head  # noqa: F401
