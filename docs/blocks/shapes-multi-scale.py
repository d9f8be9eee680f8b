# Runs without a framework.
from duet.models.training.multi_scale import MultiScale

scale = MultiScale.of_model(image_size=640, stride=32, seed=0)
values = {
    "smallest": scale.sizes()[0],
    "largest": scale.sizes()[-1],
    "sizes": len(scale.sizes()),
}
