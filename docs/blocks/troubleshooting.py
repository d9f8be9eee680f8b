# Runs without a framework.
# Needs best.safetensors, shapes, images.
from pathlib import Path

from tests.docs_blocks.blocks import show

Path("photos").mkdir()
Path("images/1.jpg").rename("photos/1.jpg")
Path("mydata.yaml").write_text(
    "train: images\nval: images\nnames: [cat]\n", encoding="utf-8"
)
Path("lost.yaml").write_text(
    "train: images/train\nval: images/val\nnames: [cat]\n", encoding="utf-8"
)
Path("best.pt").write_text("This is no weights file.\n", encoding="utf-8")
Path("half.safetensors").write_bytes(
    Path("best.safetensors").read_bytes()[:9000]
)

show("flag", "train.py --evolv 30")
show("absent-flag", "train.py --lr0 0.001")
show("override", "train.py --override lr=0.1")
show("size", "train.py --cfg yolov5n.yaml --img 100")
show("device", "train.py --device gpu")
show("model", "train.py --cfg yolov9n.yaml")
show("weights-absent", "train.py --weights yolov5s.pt")
show("weights-foreign", "train.py --weights best.pt")
show("weights-damaged", "train.py --weights half.safetensors")
show("data-absent", "train.py --data VOC.yaml")
show("data-folder", "train.py --data photos")
show("data-images", "train.py --data lost.yaml --cfg yolov5n.yaml --img 64")
show("labels", "train.py --data mydata.yaml --cfg yolov5n.yaml --img 64")
show("split", "train.py --data shapes/shapes.yaml --split 0.8")
show("classes", "val.py --weights best.safetensors --data shapes/shapes.yaml")
show("resume", "train.py --resume")
show(
    "formats", "export.py --weights best.safetensors --include onnx,openvino"
)
show("int8", "export.py --weights best.safetensors --int8")
