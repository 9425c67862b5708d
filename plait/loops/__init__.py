"""Operators with their own loop, and flows of them."""
