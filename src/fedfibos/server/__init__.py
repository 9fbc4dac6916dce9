"""What the server makes of a round's uploads: how they are merged, its optimiser, control variates."""
