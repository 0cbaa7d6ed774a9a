"""Hugging Face's data sets: Parquet files, or folders of `save_to_disk`."""

from plsc_tf.data.readers import layouts
from plsc_tf.data.readers.tables import tables


def layout(request: layouts.DataRequest) -> layouts.FilesLayout:
    """Returns the layout of the split's files."""
    return layouts.images_in_files(request, tables, ".parquet", ".arrow")
