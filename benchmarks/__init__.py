"""Measurements of plsc_tf; README.md lists them and explains their figures."""
