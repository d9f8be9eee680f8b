"""`duet audit`: find label errors in a dataset with a trained model.

duet audit --data mydata.yaml --weights best.safetensors --task train
"""

from duet import backend
from duet.backend.devices import check_device
from duet.backend.select import choose
from duet.models.evaluation.audit.audit_config import parse_audit_flags
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.processes.command import run_command
from duet.utils.weights.load import load_weights


def main() -> None:
    config = parse_audit_flags()
    check_device(config.device, choose(config.backend))
    dataset = load_dataset(config.data, splits=(config.task,), train_part=config.train_part)
    samples = load_split(dataset, config.task, max_pixels=config.max_pixels)
    weights = [load_weights(path) for path in config.weights]
    backend.use(config.backend)
    from duet.models.evaluation.audit.audit import run_audit

    run_audit(config, dataset, samples, weights)


if __name__ == "__main__":
    run_command(main)
