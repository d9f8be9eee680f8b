# Runs without a framework.
# Needs shapes.
python -m utils.data.records pack --data shapes/shapes.yaml --out packed
python -m utils.data.records verify packed
