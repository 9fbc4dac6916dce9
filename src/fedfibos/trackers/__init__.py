"""Experiment trackers: what a run records, in the programs that people look at it with."""
