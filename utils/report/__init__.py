"""Output of a run: lines and tables on screen, results.csv, stage times, plots."""
