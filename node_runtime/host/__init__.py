"""A node's process: its agent, its Ray actor, its endpoints."""
