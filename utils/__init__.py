"""Everything that is neither a model nor a framework; one folder per subject.

Files at the top are shared by several folders: errors, text, tasks. Folders do not import
each other in cycles, as checked by `tests/structure/test_imports.py`; see docs/en/architecture.md.
"""
