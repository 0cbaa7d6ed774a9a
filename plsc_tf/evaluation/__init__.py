"""How good embeddings are: face verification and the table a run ends with."""
