"""What goes in and out of the coordinator: requests, events, commands, views."""
