"""Starts, supervises and ends the workers on one machine; works without TensorFlow."""
