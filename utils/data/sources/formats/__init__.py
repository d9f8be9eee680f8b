"""Label formats: one file each, which recognises its files and reads them."""
