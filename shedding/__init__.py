"""Quality of data: who gets which CPU, what moves and what is dropped when there is more input than
CPU, and why. `README.md` beside this file has the words and the files. The first rule: what is shed
is counted, and a promise that cannot be kept is an alert, never silent.
"""
