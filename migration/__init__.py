"""Moves bins of keyed state between nodes without stopping the stream.

This version holds no code here yet; `README.md` beside this file says what the folder is for and
which rules its modules will keep. The first rule: in every epoch a bin has exactly one owner.
"""
