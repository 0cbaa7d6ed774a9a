"""Your own images in class folders."""

from plsc_tf.data.readers.by_request import requested_folders
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import Source

INFO = DatasetInfo(
    description="class folders of JPEG, PNG or GIF files, nested or not",
    tfrecords=True,
)


def examples(request: DataRequest) -> Source:
    """Reads <dataset_dir>[/<split>]/<class>/<image>."""
    return requested_folders(request)
