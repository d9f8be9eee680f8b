"""Where the figures of a run go besides its folder: an event each, to any number of loggers."""
