"""Checks a data set for problems before a training run encounters them."""
