"""The client of a cluster: submits jobs and steers them."""
