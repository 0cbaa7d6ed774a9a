"""Classification heads: margin losses, distributed softmax, sharding."""
