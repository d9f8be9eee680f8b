"""What was found in an image, as a person or another program takes it."""
