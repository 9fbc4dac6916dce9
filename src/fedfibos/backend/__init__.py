"""What runs fast and the same every time: exact top-k, reductions, recorded steps, memory, determinism."""
