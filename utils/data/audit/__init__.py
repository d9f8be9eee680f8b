"""What a trained model says about the labels of a dataset."""
