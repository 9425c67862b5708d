"""How many workers run, and on which stage, decided while a job runs."""
