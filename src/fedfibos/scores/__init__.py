"""Where per-client scores live: in memory, or one file for each client and version."""
