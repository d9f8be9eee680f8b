"""Tasks: the parts of each that need no framework; `models/heads` has the rest."""
