"""Plain Python functions in worker processes."""
