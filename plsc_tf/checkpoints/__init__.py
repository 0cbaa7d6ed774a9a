"""Saves, restores and edits checkpoints; their format doesn't depend on replicas."""
