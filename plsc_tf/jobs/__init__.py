"""Implements the commands; all code that takes `Settings` is here."""
