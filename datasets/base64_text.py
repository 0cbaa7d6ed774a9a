"""Your own images in PLSC's base64 part files, which file_list.txt lists."""

from plsc_tf.data.readers import layouts

layout = layouts.images_in_base64
