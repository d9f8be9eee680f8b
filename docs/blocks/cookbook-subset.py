# Runs without a framework.
# Needs shapes.
# --8<-- [start:page]
import shutil
from pathlib import Path

KEPT = [2, 4]  # class numbers of the large dataset; they become 0 and 1
SOURCE, TARGET = Path("shapes"), Path("subset")
number = 0
for labels in sorted(SOURCE.glob("labels/train/*.txt")):
    rows = [line.split() for line in labels.read_text().splitlines()]
    rows = [row for row in rows if int(row[0]) in KEPT]
    if not rows:
        continue  # a few of these are worth keeping, as background
    lines = [
        " ".join([str(KEPT.index(int(row[0]))), *row[1:]]) for row in rows
    ]
    image = SOURCE / "images" / "train" / f"{labels.stem}.jpg"
    for path in (image, labels):
        copy = TARGET / path.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    copy.write_text("\n".join(lines))
    number += 1
print(number, "images with one of the classes")
# --8<-- [end:page]
