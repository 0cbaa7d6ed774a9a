"""Contains `Classifier`, its training loop and step, and the parts they use."""
