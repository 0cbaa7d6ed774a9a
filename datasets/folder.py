"""Your own images in class folders: <dataset_dir>[/train]/<class>/<image>."""

from plsc_tf.data.readers.by_request import requested_folders
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import Source

INFO = DatasetInfo(
    description="class folders of JPEG, PNG or GIF files, nested or not",
)


def examples(request: DataRequest) -> Source:
    """Reads <dataset_dir>/<split>, or <dataset_dir> itself for the train split."""
    return requested_folders(request)
