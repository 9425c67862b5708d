"""Builds the native engine of a job."""
