"""One image: its header, its pixels, and its place in the input of the network."""
