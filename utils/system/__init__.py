"""All that knows the operating system, with backend/system.py: `tests/structure/test_system.py`."""
