"""Classic image classification networks under TF-Slim's names.

A zoo network returns the features that its logits would be computed from, after the
network's own dropout. If an embedding size is set, an embedding layer follows.
"""
