# Runs on torch and oneflow.
# Shows lines with results  .
# Runs small here: --epochs 1 --img 64
# --8<-- [start:page]
duet train --data corrected --cfg yolov5n --weights '' --hyp demo \
    --img 160 --epochs 60
# --8<-- [end:page]
