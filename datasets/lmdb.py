"""LMDB files of Vec2Face and its data sets: HSFace, VFace, WebFace4M."""

from plsc_tf.data.readers import layouts
from plsc_tf.data.readers.lmdb_files import lmdb_source


def layout(request: layouts.DataRequest) -> layouts.FilesLayout:
    """Returns the layout of the split's files."""
    return layouts.images_in_files(request, lmdb_source, ".lmdb", "data.mdb")
