"""Files of each format: how they are read, and how rows are written."""
