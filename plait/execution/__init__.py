"""Runs a job in this process."""
