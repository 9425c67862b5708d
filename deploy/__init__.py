"""Brings plait onto machines: cluster files, checks before the start, a broker for development.

This version holds no code here yet; `README.md` beside this file says what the folder is for and
which rules its modules will keep. The first rule: nothing in the package imports this folder.
"""
