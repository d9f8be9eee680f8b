# Runs without a framework.
# Needs shapes.
import numpy as np

from duet.backend.processes import Process
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.train_config import TrainConfig
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.processes.world import World

samples = load_split(load_dataset("shapes/shapes.yaml"), "train")
augment = TrainConfig().augmentation(read_hyperparameters(DEFAULT_HYPERPARAMETERS))


def first_batch(rank, ranks):
    world = World(Process(rank, local_rank=rank, world_size=ranks))
    with TrainLoader(samples, TrainRecipe(64, 4, augment, seed=0), world=world) as loader:
        batch = loader.batch(epoch=0, batch_index=0)
    print(f"rank {rank} of {ranks}: images", batch.sample_indices.tolist())
    return batch.images


alone = first_batch(0, 1)
together = [first_batch(rank, 2) for rank in (0, 1)]
print("the same bytes:", np.array_equal(alone, np.concatenate(together)))
