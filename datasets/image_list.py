"""Your own images listed in <dataset_dir>/label.txt, one "path label" per line."""

from plsc_tf.data.readers.by_request import requested_list
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import Source

INFO = DatasetInfo(description="label.txt with one 'path label' line per image (PLSC)")


def examples(request: DataRequest) -> Source:
    """Reads label.txt, or label_<split>.txt for another split than train."""
    return requested_list(request)
