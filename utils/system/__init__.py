"""All that knows the operating system, with a plain way where one lacks something.

With backend/system.py the only such place: `tests/structure/test_system.py`.
"""
