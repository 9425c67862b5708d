"""Runs sub-pipelines on one machine's cores, in order."""
