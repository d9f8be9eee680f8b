"""Tasks: what each asks of everything that needs no framework; `models/heads` has the rest."""
