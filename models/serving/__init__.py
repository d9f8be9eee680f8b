"""The worker of a served model: image files in, what is found in them out."""
