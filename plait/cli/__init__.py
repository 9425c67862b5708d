"""The command line."""

from plait.cli.commands import main

__all__ = ["main"]
