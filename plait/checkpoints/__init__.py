"""Checkpoints on a store: what is written, how it is checked when it is read, and what goes."""
