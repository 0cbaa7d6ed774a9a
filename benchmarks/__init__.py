"""Measurements of the head: seconds per step and memory, beside the bare products."""
