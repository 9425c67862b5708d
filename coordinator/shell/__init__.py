"""The effects around the machine: threads, gateways, Ray."""
