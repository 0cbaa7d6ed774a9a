"""Edits the classes of a trained checkpoint, and finds wrong labels."""
