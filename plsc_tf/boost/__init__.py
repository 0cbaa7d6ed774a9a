"""Dimension-reduction training: snapshots, their principal components, the steps."""
