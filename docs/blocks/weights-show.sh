# Runs without a framework.
# Needs best.safetensors.
python -m duet weights show best.safetensors
