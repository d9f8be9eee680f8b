"""The plots of a run, one file per subject; docs/en/plots.md says what each shows.

Drawing imports matplotlib or OpenCV where it needs them, and leaves their global state alone.
"""
