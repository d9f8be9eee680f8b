"""Heads, one folder per task; `models/blocks/registry.py` names the modules of all."""
