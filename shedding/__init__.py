"""Quality of data: what to drop when there is more input than CPU, and how to account for it.

This version holds no code here yet; `README.md` beside this file says what the folder is for and
which rules its modules will keep. The first rule: what is shed is counted, never silent.
"""
