# Runs on torch and oneflow.
# Needs shapes.
# Shows lines with data   , model  , px, recipe  , seed , results  , best:.
# Numbers differ from run to run.
# Runs small here: --data shapes/shapes.yaml --img 64 --batch 4 --epochs 1 --workers 0 --noplots
# --8<-- [start:page]
python train.py --data shapes --cfg models/yolov5n.yaml --weights '' --img 160 --batch 16 --epochs 60
# --8<-- [end:page]
