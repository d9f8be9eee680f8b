"""Classification's figures: which class is found for each image."""
