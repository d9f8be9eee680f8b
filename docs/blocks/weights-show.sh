# Runs on torch and oneflow.
# Shows lines with format, tensors, finished, task, classes.
duet weights show runs/train/exp/weights/best.safetensors
