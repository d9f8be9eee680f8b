"""What runs exported files: one small interface, a file for each runtime."""
