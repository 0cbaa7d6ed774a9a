"""Builds the objects of a run from `Settings`: data, model, optimizer, reporting."""
