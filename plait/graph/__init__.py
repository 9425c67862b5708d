"""A job as data: operators, pipeline stages, labels, snapshots."""
