"""What leaves the training machine: SavedModels for TensorFlow Serving."""
