"""Loggers: the events of a run go to any number of them, besides the files of its folder."""
