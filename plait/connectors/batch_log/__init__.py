"""The batch log: a folder of numbered batches that Spark and plait write and read exactly once."""
