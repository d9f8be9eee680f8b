"""A backend for inference only, on NumPy: just what `backend/contract/inference.py` promises.

Only the tests register it: `tests/conformance/inference_only/run.py`.
"""
