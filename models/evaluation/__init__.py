"""A model and a split of a dataset: what it finds, scored."""
