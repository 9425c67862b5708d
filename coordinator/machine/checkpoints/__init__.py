"""Checkpoints of a job, and how it goes back to one."""
