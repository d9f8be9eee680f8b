"""Weights of any kind -> checkpoints; files of other programs are read as data and run nothing."""
