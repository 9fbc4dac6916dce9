"""What a local step is made of: where it runs, and its loss."""
