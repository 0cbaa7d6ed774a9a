"""Strategies, workers, collectives, and arrays that are sharded over the replicas."""
