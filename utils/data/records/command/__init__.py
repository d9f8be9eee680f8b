"""What `python -m utils.data.records` does: pack, unpack, look into files."""
