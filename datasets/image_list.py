"""Your own images in a list of "path label" lines."""

from plsc_tf.data.readers.by_request import requested_list
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import Source

INFO = DatasetInfo(
    description="label.txt with one 'path label' line per image (PLSC)",
    tfrecords=True,
)


def examples(request: DataRequest) -> Source:
    """Reads label.txt or label_<split>.txt."""
    return requested_list(request)
