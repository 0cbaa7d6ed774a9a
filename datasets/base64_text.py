"""Your own images as PLSC's base64 part files, which file_list.txt names."""

from plsc_tf.data import paths
from plsc_tf.data.readers.base64_text import base64_files, listed_files
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import Source

INFO = DatasetInfo(
    description="file_list.txt and part files of 'base64<TAB>label' lines (PLSC)"
)


def examples(request: DataRequest) -> Source:
    """Reads the files of <dataset_dir>/file_list.txt, or those of train_files."""
    if request.train_files:
        files = paths.expand(request.train_files, request.dataset_dir)
    else:
        files = listed_files(request.dataset_dir)
    return base64_files(
        files, num_classes=request.num_classes, labels_offset=request.labels_offset
    )
