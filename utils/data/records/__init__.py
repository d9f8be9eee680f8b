"""FFRecord files: many images in one; docs/records.md describes them, command/ makes them."""
