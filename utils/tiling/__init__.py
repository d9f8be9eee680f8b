"""Large images in tiles: where the tiles lie, and what is found in them put together."""
