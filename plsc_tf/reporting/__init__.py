"""Training reports: logs, charts, traces and metrics files."""
