"""Computes the memory that a training run needs before it starts."""
