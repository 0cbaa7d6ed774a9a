"""Your own images as PLSC's base64 part files, which file_list.txt names."""

from plsc_tf.data.readers import layouts
from plsc_tf.data.request import DatasetInfo

INFO = DatasetInfo(
    description="file_list.txt and part files of 'base64<TAB>label' lines (PLSC)"
)
layout = layouts.images_in_base64
examples = layouts.opens(layout)
