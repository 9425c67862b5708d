"""What the coordinator writes down before it acts."""
