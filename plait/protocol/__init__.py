"""What the coordinator and a node say to each other."""
