"""What a run shows: lines and tables on screen, results.csv, stage times, plots."""
