# Runs without a framework.
import json
from pathlib import Path

from PIL import Image

from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split

for folder in ("yolo/images/train", "yolo/labels/train", "voc", "coco/train"):
    Path(folder).mkdir(parents=True)
for folder in ("yolo/images/train", "voc", "coco/train"):
    Image.new("RGB", (640, 480)).save(f"{folder}/1.jpg")

# A dog 160 px wide and 240 px high; its top left corner is at x 240, y 72.
Path("yolo/labels/train/1.txt").write_text("0 0.5 0.4 0.25 0.5")
Path("yolo/classes.txt").write_text("dog")
Path("voc/1.xml").write_text("""<annotation>
  <size><width>640</width><height>480</height></size>
  <object><name>dog</name>
    <bndbox><xmin>240</xmin><ymin>72</ymin>
      <xmax>400</xmax><ymax>312</ymax></bndbox>
  </object>
</annotation>""")
coco = {
    "images": [{"id": 7, "file_name": "1.jpg", "width": 640, "height": 480}],
    "categories": [{"id": 18, "name": "dog"}],
    "annotations": [
        {
            "id": 1,
            "image_id": 7,
            "category_id": 18,
            "bbox": [240, 72, 160, 240],
        }
    ],
}
Path("coco/train/_annotations.coco.json").write_text(json.dumps(coco))

for argument in ("yolo", "voc", "coco"):
    dataset = load_dataset(argument, splits=["train"])
    (sample,) = load_split(dataset, "train")
    print(
        f"{argument:5}",
        dataset.class_names,
        sample.class_index,
        sample.boxes_cxcywh_norm,
    )
