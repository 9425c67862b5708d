"""Expressions over columns, their types, and aggregates."""
