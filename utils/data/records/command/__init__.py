"""What `python -m utils.data.records pack` does, and the new folders of others."""
