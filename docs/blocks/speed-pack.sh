# Runs without a framework.
# Needs shapes.
python -m duet records pack --data shapes/shapes.yaml --out packed
python -m duet records verify packed
