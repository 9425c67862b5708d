"""Spark: data frames and streams in, results out. pyspark is imported here only, and when used."""
