"""Your own MXNet RecordIO files: train.rec and train.idx, as insightface has them."""

from plsc_tf.data.readers.by_request import requested_recordio
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import Source

INFO = DatasetInfo(
    description="train.rec and train.idx (MXNet RecordIO), read without mxnet",
    tfrecords=True,
)


def examples(request: DataRequest) -> Source:
    """Reads <dataset_dir>/<split>.rec, with .idx or not."""
    return requested_recordio(request)
