"""A running count by key, for ever: the job that is submitted in the test of `ray up`."""

import plait
from plait import col

job = plait.Job("job")
keyed = job.source(plait.Rate(5_000)).with_columns(key=col("seq") * 7919 % 1009).key_by("key")
keyed.aggregate(seq=plait.last("seq"), n=plait.count()).sink(plait.Collect(), name="out")
