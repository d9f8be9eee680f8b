# Runs on torch and oneflow.
# Shows lines with transferred, by name, frozen.
duet train --data shapes --weights runs/train/exp/weights/best.safetensors \
    --remap-classes --freeze 10 --img 64 --epochs 1 --fraction 0.1 --noplots
