"""User functions: called, compiled, awaited, retried."""
