"""Vocabulary: schemas, records, durations, settings, schedulers, call sites."""
