"""Seeing what a training does: logs, charts, traces, and the report of the run."""
