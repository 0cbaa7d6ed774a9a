"""Importers: checkpoints of PLSC and of arcface_torch as weights of ours."""

from plsc_tf.checkpoints.importers.source import FORMATS, Source, assign, read

__all__ = ["FORMATS", "Source", "assign", "read"]
