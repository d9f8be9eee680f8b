"""What a run tells: lines on screen, results.csv, plots."""
