"""Federated learning across clients of unequal capacity."""
