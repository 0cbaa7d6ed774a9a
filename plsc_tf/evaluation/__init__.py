"""Evaluation of embeddings: protocols, metrics, charts and the evaluation card."""
