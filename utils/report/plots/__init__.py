"""Plots of a run, one file per subject; described in docs/en/plots.md.

matplotlib and OpenCV are imported where needed, and their global state is not changed.
"""
