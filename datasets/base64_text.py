"""Your own images as PLSC's base64 part files, which file_list.txt names."""

from plsc_tf.data.readers.by_request import requested_base64
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import Source

INFO = DatasetInfo(
    description="file_list.txt and part files of 'base64<TAB>label' lines (PLSC)"
)


def examples(request: DataRequest) -> Source:
    """Reads the files of <dataset_dir>/file_list.txt, or those of train_files."""
    return requested_base64(request)
