"""CASIA-WebFace faces, aligned to 112x112: label.txt and images/, or train.rec.

490,623 images, in insightface's version. Yi et al.: Learning face representation from
scratch, 2014.
"""

from plsc_tf.data.readers import layouts

INFO = layouts.DatasetInfo(num_classes=10_572, tfrecords=True)
layout = layouts.faces
