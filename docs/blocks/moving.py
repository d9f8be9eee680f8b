# Runs without a framework.
from tests.docs_blocks.blocks import flags_taken

COMMANDS = """
train.py --img 640 --batch 16 --epochs 3 --data coco.yaml --weights yolov5s.pt --cache
train.py --data coco.yaml --epochs 300 --weights '' --cfg yolov5n.yaml --batch-size 128
train.py --data coco.yaml --weights yolov5s.pt --hyp hyp.scratch-low.yaml --multi-scale
train.py --data coco.yaml --weights yolov5s.pt --freeze 10 --optimizer AdamW --cos-lr
train.py --data coco.yaml --weights yolov5s.pt --image-weights --evolve 300
train.py --resume
train.py --data coco.yaml --weights yolov5s.pt --entity team --bbox_interval 5
val.py --weights yolov5s.pt --data coco.yaml --img 640 --conf-thres 0.001 --iou-thres 0.65
val.py --weights yolov5s.pt yolov5l.pt --data coco.yaml --augment --half --save-json
val.py --weights yolov5s.pt --data coco.yaml --task study
val.py --weights yolov5s.pt --data coco.yaml --save-hybrid
detect.py --weights yolov5s.pt --source video.mp4 --save-txt --save-conf --save-crop
detect.py --weights yolov5s.pt --source 0 --classes 0 2 --agnostic-nms --vid-stride 2
detect.py --weights yolov5s.pt --source images --data coco.yaml --visualize
export.py --weights yolov5s.pt --include torchscript onnx --imgsz 640 640 --dynamic
export.py --weights yolov5s.pt --include engine --half --device 0 --workspace 4
"""

for command in COMMANDS.strip().splitlines():
    print(command)
    for line in flags_taken(command).splitlines():
        print("   ", line)
