# Runs on torch and oneflow.
# Needs best.safetensors, images.
# Shows lines with found:, images/s, results in.
# Numbers differ from run to run.
# Runs small here: --img 64 --max-det 8
duet detect --weights best.safetensors --source images/
