"""The state machine of jobs. Pure."""
