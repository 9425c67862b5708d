"""The fluent builder: jobs, streams and their verbs."""
