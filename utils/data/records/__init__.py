"""FFRecord files: many images in one; docs/en/records.md describes them."""
