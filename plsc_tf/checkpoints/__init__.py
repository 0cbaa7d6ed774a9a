"""Checkpoints that know rows and weights, and nothing of replicas."""
