"""Keyed state in Python."""
