"""From files to batches: sources, pictures, the pipeline and verification pairs."""
