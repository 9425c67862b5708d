"""How a topic is watched while it is read."""
