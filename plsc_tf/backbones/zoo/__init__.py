"""The classic networks of image classification, by TF-Slim's names.

A network of the zoo gives the features that its logits are made of, in its own number,
behind its own dropout; with an embedding size an embedding layer follows.
"""
