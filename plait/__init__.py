"""plait: many cores, many nodes, one order."""
