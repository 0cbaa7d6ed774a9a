"""Readers: each turns one layout on disk, or a Python object, into a Source."""
