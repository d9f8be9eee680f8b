"""The results of an image, for a person or for another program."""
