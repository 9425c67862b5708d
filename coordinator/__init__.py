"""Decides what runs where: which node owns which bin, and what each node is asked to do next.

This version holds no code here yet; `README.md` beside this file says what the folder is for and
which rules its modules will keep. The first rule: nothing here imports a compiled module.
"""
