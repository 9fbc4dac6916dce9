"""Differential privacy of clients: what the server adds noise to, and what the rounds so far have spent."""
