"""Your own images in class folders, or the TFRecords that were made of them."""

from plsc_tf.data.readers.by_request import requested_folders, requested_records
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import Source

INFO = DatasetInfo(
    description="class folders of JPEG, PNG or GIF files, nested or not",
)


def examples(request: DataRequest) -> Source:
    """Reads <dataset_dir>[/<split>]/<class>/<image>, or train_files' TFRecords."""
    if request.train_files:
        return requested_records(request, "folder", INFO)
    return requested_folders(request)
