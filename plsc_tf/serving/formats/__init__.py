"""Other formats of an exported model, made from its SavedModel and loaded again.

Each module has `convert`, which makes the file's bytes, and `load`, which makes a
callable of them: uint8 [N, height, width, 3] -> float32 [N, embedding_size].
"""
