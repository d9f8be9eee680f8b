"""The parts of a model that are fitted to the labels before it is made.

Before: `start.py` has the model YAML, or that of the weights. After: it makes the model.
"""

from __future__ import annotations

import json

from models.graph import ModelSpec, parse_model, plan_layers
from models.heads.base import Head
from models.registry import find_block
from utils.data.anchors.fit import label_sizes
from utils.files.json import parse_json
from utils.state.job import Job


def fit_to_labels(spec: ModelSpec, job: Job) -> ModelSpec:
    """Return the model as its head wants it for the labels of a new training; all ranks get one.

    Raises:
        UserError: the flags do not go with what the head needs.
    """
    head: type[Head] = find_block(spec.layers[-1].block).kind
    plans = plan_layers(spec)
    strides = [plans[source].stride for source in spec.layers[-1].sources]
    fitted = ""
    if job.world.process.is_main:  # one process decides: another's processor may round otherwise
        sizes_wh = label_sizes(job.train_samples, job.config.image_size)
        fitted = json.dumps(head.fitted(spec.document, strides, sizes_wh, job.hyp, job.config))
    document = parse_json(job.world.of_main(fitted))
    return spec if document == spec.document else parse_model(document)
