"""Computes the memory that a training needs before it starts."""
