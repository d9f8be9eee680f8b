# --8<-- [start:page]
# Runs without a framework.
from duet.backend.processes import Process

for images in (16, 6, 3):
    ranks = [
        Process(rank, local_rank=rank, world_size=4) for rank in range(4)
    ]
    print(
        f"{images:2} images:",
        *(list(rank.shard(range(images))) for rank in ranks),
    )
# --8<-- [end:page]
