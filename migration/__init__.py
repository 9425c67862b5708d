"""Moves bins of keyed state between nodes without stopping the stream.

Everything here is pure: maps of bins, the map wanted next, the plan from one to the other, the plan
as layouts, and the run of a plan. The first rule: in every epoch a bin has exactly one owner.
"""
