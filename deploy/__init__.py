"""Brings plait onto machines: cluster files for `ray up`, and the check of a running cluster.

`README.md` beside this file says how the parts are used. The first rule: nothing in the package
imports this folder but the commands for clusters.
"""
