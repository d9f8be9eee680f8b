"""Every public flag works or says what takes its place, and the page of flags is true."""

import pytest

from tests.flag_page import PAGE, page
from utils.cli.absent_flags import TRAINING, VALIDATION
from utils.cli.flags import flags_of
from utils.cli.train_config import TrainConfig
from utils.cli.val_config import ValConfig

# Of the public YOLOv5 v7, as its --help lists them.
TRAIN_FLAGS = (
    "--weights --cfg --data --hyp --epochs --batch-size --imgsz --img --img-size --rect --resume "
    "--nosave --noval --noautoanchor --noplots --evolve --bucket --cache --image-weights --device "
    "--multi-scale --single-cls --optimizer --sync-bn --workers --project --name --exist-ok --quad "
    "--cos-lr --label-smoothing --patience --freeze --save-period --seed --local_rank --entity "
    "--upload_dataset --bbox_interval --artifact_alias"
)
VAL_FLAGS = (
    "--data --weights --batch-size --imgsz --img --img-size --conf-thres --iou-thres --max-det "
    "--task --device --workers --single-cls --augment --verbose --save-txt --save-hybrid "
    "--save-conf --save-json --project --name --exist-ok --half --dnn"
)


@pytest.mark.parametrize(
    ("settings", "absent", "public"),
    [(TrainConfig, TRAINING, TRAIN_FLAGS), (ValConfig, VALIDATION, VAL_FLAGS)],
    ids=["train", "val"],
)
def test_every_public_flag_is_accepted_or_answered(settings, absent, public):
    known = {name for found in flags_of(settings).values() for name in found.names}
    answered = set(absent)
    assert known & answered == set()
    unknown = [flag for flag in public.split() if flag not in known]
    assert {flag.replace("_", "-") for flag in unknown} <= answered


def test_the_page_of_flags_is_that_of_the_parsers():
    assert PAGE.read_text() == page(), "python -m tests.flag_page writes it anew"
