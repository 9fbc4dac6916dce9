"""Submodels and uploads as bytes."""
