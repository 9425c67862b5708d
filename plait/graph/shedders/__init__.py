"""Which records of a job may be dropped under overload, and where."""
