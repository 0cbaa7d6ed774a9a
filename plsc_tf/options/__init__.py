"""Reads options from the command line and flag files, and checks and stores them."""
