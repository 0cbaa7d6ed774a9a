"""PLSC's package of utilities."""
