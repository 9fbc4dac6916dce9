"""The directory of a run: what was run, where, what each round did, what came out."""
