"""Checks a data set for problems before a training encounters them."""
