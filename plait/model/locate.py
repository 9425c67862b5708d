"""Finds the line of the user's code that is calling: the first frame outside the plait package.

Frames are told apart by the name of their module, not by their file, because the folders of the
package lie in several places.
"""

from __future__ import annotations

import sys

from plait.model import Location


def here() -> Location:
    """The place in the user's code from which plait was called."""
    frame = sys._getframe(1)
    while True:
        module = frame.f_globals.get("__name__", "")
        inside = module == "plait" or module.startswith("plait.")
        if not inside or frame.f_back is None:
            return Location(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
