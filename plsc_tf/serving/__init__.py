"""Exports SavedModels and serves them; clients and face galleries."""
