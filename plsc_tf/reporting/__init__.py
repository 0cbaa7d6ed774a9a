"""Reports of a training: logs, charts, traces, metrics files."""
