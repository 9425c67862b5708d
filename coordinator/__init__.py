"""Decides what runs where: which node owns which bin, and what each node is asked to do next.

The decisions are pure (`step`), the shell around them is `manager.JobManager`; `README.md` beside
this file is the way in. The first rule: nothing here imports a compiled module.
"""
