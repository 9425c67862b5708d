"""Quality of data: what to drop when there is more input than CPU, and how to account for it.

So far it holds the rates of sources, which a decision to drop will need; `README.md` beside this
file says which rules the rest will keep. The first rule: what is shed is counted, never silent.
"""
