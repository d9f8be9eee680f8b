"""Runtimes of exported files: one small interface, one file per runtime."""
