"""Heads, one folder per task: importing this registers all of them for model YAMLs."""

import models.heads.anchor.head
import models.heads.classify.head
import models.heads.mask.head  # noqa: F401
