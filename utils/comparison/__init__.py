"""compare.py in parts: plan the runs, run them, judge them, and report in three forms."""
