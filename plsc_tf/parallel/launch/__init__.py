"""Starting the workers of a machine, and seeing to their end; without TensorFlow."""
