"""Everything of the project that is neither a model nor a framework, one subject to a file."""
