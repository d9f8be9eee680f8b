"""What `python -m utils.data.records pack` does."""
