# Runs on torch and oneflow.
# Needs shapes, best.safetensors.
# Shows lines with transferred, by name, frozen.
# Runs small here: --data shapes/shapes.yaml --img 64 --batch 4 --epochs 1 --workers 0 --noval --noplots
python train.py --data shapes --weights best.safetensors --remap-classes --freeze 2
