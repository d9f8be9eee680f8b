# Runs without a framework.
import shutil
from pathlib import Path

shutil.copytree("datasets/shapes", "spoiled")
images, labels = Path("spoiled/images"), Path("spoiled/labels")
train = sorted(images.glob("train/*.jpg"))
names = [path.stem for path in train]

# 1. A photo that is also in the other split.
shutil.copy(train[0], images / "val")
shutil.copy(labels / f"train/{names[0]}.txt", labels / "val")
# 2. Labels in pixels.
(labels / f"train/{names[1]}.txt").write_text("0 32 32 20 20\n")
# 3. A class that the YAML does not name.
(labels / f"train/{names[2]}.txt").write_text("5 0.5 0.5 0.2 0.2\n")
# 4. An object that is labelled twice.
path = labels / f"train/{names[3]}.txt"
path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")
# 5. A truncated download.
train[4].write_bytes(train[4].read_bytes()[:1000])
