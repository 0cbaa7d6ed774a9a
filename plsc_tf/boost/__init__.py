"""Dimension-reduction training: snapshots, principal components, reduced steps."""
