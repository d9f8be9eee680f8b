"""A backend for inference only, on NumPy: what `backend/contract/inference.py` asks, no more.

Only the tests register it: `tests/conformance/inference_only/run.py`.
"""
