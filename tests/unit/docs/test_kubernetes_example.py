"""docs/examples/train-job.yaml: train.py takes its flags, and a suspended pod starts again."""

from __future__ import annotations

import yaml

from duet.utils.cli.train_config import parse_train_flags
from duet.utils.project import PROJECT

DOCUMENTS = {
    document["kind"]: document
    for document in yaml.safe_load_all(
        (PROJECT / "docs" / "examples" / "train-job.yaml").read_text(encoding="utf-8")
    )
}
JOB = DOCUMENTS["Job"]["spec"]
(CONTAINER,) = JOB["template"]["spec"]["containers"]


def test_train_py_accepts_the_flags_of_the_job():
    config = parse_train_flags(CONTAINER["args"])
    assert (config.resume, config.weights) == ("auto", "")
    assert (PROJECT / config.cfg).is_file()


def test_the_pods_of_the_job_find_one_another():
    environment = {item["name"]: item.get("value") for item in CONTAINER["env"]}
    name, service = DOCUMENTS["Job"]["metadata"]["name"], DOCUMENTS["Service"]["metadata"]["name"]
    assert environment["MASTER_ADDR"] == f"{name}-0.{service}"
    assert environment["WORLD_SIZE"] == str(JOB["completions"]) == str(JOB["parallelism"])


def test_suspended_pods_start_again_and_mistakes_do_not():
    actions = {
        code: rule["action"]
        for rule in JOB["podFailurePolicy"]["rules"]
        for code in rule.get("onExitCodes", {}).get("values", [])
    }
    assert actions == {75: "Ignore", 2: "FailJob"}
