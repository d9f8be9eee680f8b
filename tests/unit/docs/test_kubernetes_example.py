"""docs/examples/train-job.yaml: its parts fit together, and train.py takes its flags."""

from __future__ import annotations

from tests.kubernetes_objects import documents
from utils.cli.train_config import parse_train_flags
from utils.files.project import PROJECT


def container():
    (found,) = documents()["Job"]["spec"]["template"]["spec"]["containers"]
    return found


def test_train_py_accepts_the_flags_of_the_job():
    config = parse_train_flags(container()["args"])
    assert (config.resume, config.weights) == ("auto", "")
    assert (PROJECT / config.cfg).is_file()


def test_the_pods_of_the_job_find_one_another_and_their_storage():
    service, claim, job = (documents()[k] for k in ("Service", "PersistentVolumeClaim", "Job"))
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    environment = {item["name"]: item.get("value") for item in container()["env"]}
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert environment["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{pod['subdomain']}"
    assert environment["WORLD_SIZE"] == str(spec["completions"]) == str(spec["parallelism"])
    names = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container()["volumeMounts"]} == names
    claims = [volume.get("persistentVolumeClaim", {}).get("claimName") for volume in pod["volumes"]]
    assert claim["metadata"]["name"] in claims


def test_suspended_pods_start_again_and_mistakes_do_not():
    rules = documents()["Job"]["spec"]["podFailurePolicy"]["rules"]
    actions = {
        code: rule["action"]
        for rule in rules
        for code in rule.get("onExitCodes", {}).get("values", [])
    }
    assert actions == {75: "Ignore", 2: "FailJob"}
    assert {rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule} == {
        container()["name"]
    }
    # Kubernetes accepts a failure policy with this restart policy only.
    assert documents()["Job"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"
