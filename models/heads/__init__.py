"""Heads, one folder per task; `models/blocks/registry.py` lists their modules."""
