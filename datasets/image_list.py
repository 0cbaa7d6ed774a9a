"""Your own images in a list, "path label", or the TFRecords that were made of them."""

from plsc_tf.data.readers.by_request import requested_list, requested_records
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import Source

INFO = DatasetInfo(description="label.txt with one 'path label' line per image (PLSC)")


def examples(request: DataRequest) -> Source:
    """Reads label.txt or label_<split>.txt, or the TFRecords of train_files."""
    if request.train_files:
        return requested_records(request, "image_list", INFO)
    return requested_list(request)
