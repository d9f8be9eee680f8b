"""Processes that do one job: starting, joining, watching, suspending and ending them."""
