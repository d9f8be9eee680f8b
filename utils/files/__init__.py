"""Files read strictly and written whole, and where the project lies."""
