"""Find label errors in a dataset with a trained model."""
