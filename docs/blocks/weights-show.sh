# Runs without a framework.
# Needs best.safetensors.
python -m utils.weights show best.safetensors
