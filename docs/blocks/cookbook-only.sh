# Runs on torch and oneflow.
# Needs best.safetensors, images.
# Shows lines with results.
duet detect --weights best.safetensors --source images \
    --classes circle star --save-crop --save-csv
