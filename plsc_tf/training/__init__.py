"""The training step, the loop that runs it, and what they need."""
