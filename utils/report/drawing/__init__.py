"""Boxes and labels drawn on images."""
