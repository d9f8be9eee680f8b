"""Models behind HTTP: the front process, which imports no framework and decodes no image."""
