"""Classes of a trained checkpoint: edited, and searched for wrong labels."""
