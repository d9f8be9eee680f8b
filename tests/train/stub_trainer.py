"""A stand-in for a backend's Python: it leaves what train.py leaves, without training."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from duet.utils.report.results import STAGES
from tests.small import RESULT_COLUMNS

BODY = """
import csv, json, os, sys, time
behaviour = json.loads(open(__file__ + ".json").read())
flags = dict(zip(sys.argv[2::2], sys.argv[3::2]))
behaviour |= behaviour.get(flags["--batch"], {})
for flag, message in behaviour.get("refuses", {}).items():
    if flag in sys.argv:
        print("error: " + message)
        sys.exit(2)
time.sleep(behaviour.get("sleeps", 0))
folder = os.path.join(flags["--project"], flags["--name"])
os.makedirs(os.path.join(folder, "weights"), exist_ok=True)
columns = behaviour["columns"]
with open(os.path.join(folder, "results.csv"), "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(columns)
    for epoch in range(int(flags["--epochs"])):
        row = dict.fromkeys(columns, 0.5)
        row["seconds/epoch"] = behaviour["seconds"][epoch % len(behaviour["seconds"])]
        for stage in behaviour["stages"]:
            row["seconds/" + stage] = row["seconds/epoch"] / 10
        writer.writerow(row[name] for name in columns)
work = {"precision": "float32", "train_images": 100, "batches_sha1": flags["--batch"],
        "processes": int(flags.get("--nproc", 1)),
        "settings": {"backend": flags["--backend"], "seed": int(flags["--seed"])}}
work |= behaviour.get("work", {})
for name in ("bbox_iou_optim", "multi_tensor_optimizer"):
    work["settings"][name] = "--" + name in sys.argv
    if work["settings"][name]:
        print("--" + name + ": using the plain path")
means = {"compiled": "--compile" in sys.argv} | behaviour.get("means", {})
losses = behaviour.get("losses", [[0.1, 0.2, 0.3], [0.1, 0.1, 0.2]])
with open(os.path.join(folder, "work.json"), "w") as file:
    json.dump({"schema": 1, "framework": behaviour["framework"], "device": "cpu", "work": work,
               "means": means, "losses": losses}, file)
"""


def write_stub(folder: Path, name: str, seconds: list[float], **behaviour: Any) -> Path:
    """An executable that behaves as train.py under a backend would.

    Args:
        seconds: of the epochs, in turn.
        behaviour: "work" and "means" replace parts of work.json, "losses" those of the batches,
            "refuses" is a message by flag, "sleeps" seconds before anything; under a batch size as
            text, the same for runs of that size only.
    """
    path = folder / f"{name}-python"
    path.write_text(f"#!{sys.executable}\n{BODY}", encoding="utf-8")
    path.chmod(0o755)
    document = {
        "seconds": seconds,
        "framework": f"{name} 1.0, CPU",
        "columns": RESULT_COLUMNS,
        "stages": STAGES,
        **behaviour,
    }
    path.with_name(path.name + ".json").write_text(json.dumps(document), encoding="utf-8")
    return path
