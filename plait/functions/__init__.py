"""What is known of a user's function: its signature, how it is pickled, what it shares."""
