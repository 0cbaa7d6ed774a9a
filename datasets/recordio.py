"""Your own MXNet RecordIO files: train.rec and train.idx, in insightface's format."""

from plsc_tf.data.readers import layouts
from plsc_tf.data.request import DatasetInfo

INFO = DatasetInfo(tfrecords=True)
layout = layouts.images_in_recordio
