# Runs without a framework.
import shutil
from pathlib import Path

from duet.utils.data.shapes.dataset import ShapesConfig, draw_dataset

# In place of your own: 200 pictures in one folder, labelled by hand.
config = ShapesConfig(num_train=200, num_val=30, image_side=160)
draw_dataset(Path("drawn"), config)
for kind in ("images", "labels"):
    shutil.copytree(f"drawn/{kind}/train", f"photos/{kind}")
shutil.copytree("drawn/images/val", "new")  # not labelled yet
names = "circle square triangle star cross"
Path("photos/classes.txt").write_text("\n".join(names.split()))

# Two slips: a class that does not exist, an object labelled twice.
first, second, *_ = sorted(Path("photos/labels").iterdir())
first.write_text("7 0.5 0.5 0.2 0.2\n")
lines = second.read_text().splitlines()
second.write_text("\n".join([*lines, lines[0]]))
