"""What a module does that its code alone does not tell, seen by running copies of it on a batch before any training."""
