"""Environments for both backends, made before anything is installed; and the test suites."""
