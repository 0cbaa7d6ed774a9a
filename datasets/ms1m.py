"""MS1M-ArcFace faces, aligned to 112x112: label.txt and images/ (PLSC), or train.rec.

5,822,653 images. Guo et al.: MS-Celeb-1M, ECCV 2016; cleaned by Deng et al., ArcFace,
2019.
"""

from plsc_tf.data.readers import layouts

INFO = layouts.DatasetInfo(num_classes=85_742, tfrecords=True)
layout = layouts.faces
