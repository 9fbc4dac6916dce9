"""What knows nothing of federated learning: validation, users' code, atomic files, formatting, statistics."""
