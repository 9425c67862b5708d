"""Quality of data: what is kept of which query under overload, of all jobs."""
