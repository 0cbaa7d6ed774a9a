"""WebDataset's shards: tar files of <key>.jpg (or .png, .gif) and <key>.cls."""

from plsc_tf.data.readers import layouts
from plsc_tf.data.readers.webdataset import webdataset


def layout(request: layouts.DataRequest) -> layouts.FilesLayout:
    """Returns the layout of the split's files."""
    return layouts.images_in_files(request, webdataset, ".tar")
