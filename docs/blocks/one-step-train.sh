# Runs on torch and oneflow.
# Needs shapes.
# Shows lines with mAP50-95 seconds, best:.
# Numbers differ from run to run.
# Runs small here: --data shapes/shapes.yaml --img 64 --batch 4 --epochs 2 --workers 0 --noplots
python train.py --data shapes --cfg models/yolov5n.yaml --weights '' --img 320 --epochs 100
