"""Data input: sources, image processing, the pipeline and verification pairs."""
