"""Your own images as PLSC's base64 part files, which file_list.txt names."""

from plsc_tf.data.readers import layouts

layout = layouts.images_in_base64
