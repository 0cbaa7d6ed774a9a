"""Classification heads: margins, distributed softmax, sharded and replicated."""
