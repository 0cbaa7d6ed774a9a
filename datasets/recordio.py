"""Your own MXNet RecordIO files: train.rec and train.idx, in insightface's format."""

from plsc_tf.data.readers import layouts

INFO = layouts.DatasetInfo(tfrecords=True)
layout = layouts.images_in_recordio
