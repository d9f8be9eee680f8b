# Runs on torch and oneflow.
# Shows lines with data   , model  , 64 px, recipe  , seed , results  , mAP50-95 seconds,   1/1 , nothing was, longer, best:.
# Numbers differ from run to run.
# --8<-- [start:page]
duet train --data shapes --cfg yolov5n --weights '' --img 64 --epochs 1
# --8<-- [end:page]
