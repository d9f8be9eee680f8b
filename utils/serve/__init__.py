"""The HTTP server for models: a front process that imports no framework and decodes no image."""
