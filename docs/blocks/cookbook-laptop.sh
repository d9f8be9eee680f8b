# Runs on torch and oneflow.
# Needs shapes.
# Shows lines with results  .
# Runs small here: --epochs 1 --img 64 --data shapes/shapes.yaml --weights '' --cfg yolov5n
duet train --data mydata --weights yolov5n.pt --hyp small \
    --name evening --resume auto --time-limit 60
