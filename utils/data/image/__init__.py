"""One image, of no dataset: its header, its pixels, and its place in the input of the network."""
