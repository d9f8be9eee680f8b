# Runs without a framework.
from duet.models.training.multi_scale import MultiScale

scale = MultiScale.of_model(image_size=640, stride=32, seed=0)
print(
    "sizes",
    scale.sizes()[0],
    "to",
    scale.sizes()[-1],
    "in",
    len(scale.sizes()),
    "steps",
)
print("first batches:", [scale.draw(number) for number in range(8)])
print("batch 5 again:", scale.draw(5))
print(
    "a batch of 384 x 640 with long side 480:", scale.shape((384, 640), 480)
)

values = {
    "smallest": scale.sizes()[0],
    "largest": scale.sizes()[-1],
    "sizes": len(scale.sizes()),
}
