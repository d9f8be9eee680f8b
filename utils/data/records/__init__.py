"""FFRecord files: many images in one; docs/en/records.md describes them."""

from utils.data.records.record_images import RECORDS

__all__ = ["RECORDS"]
