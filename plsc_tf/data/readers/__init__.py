"""Readers, each of which turns one file layout or Python object into a `Source`."""
