# Runs without a framework.
duet records pack --data shapes --out packed
duet records verify packed
