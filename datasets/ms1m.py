"""MS1M-ArcFace faces: label.txt and images/ (PLSC), or train.rec."""

from plsc_tf.data.readers import layouts
from plsc_tf.data.request import DatasetInfo

INFO = DatasetInfo(
    description="faces of 85,742 people, aligned to 112x112",
    num_classes=85_742,
    num_examples=5_822_653,
    image_size=(112, 112),
    source="Guo et al.: MS-Celeb-1M, ECCV 2016; cleaned by Deng et al., ArcFace, 2019",
    tfrecords=True,
)
layout = layouts.faces
examples = layouts.opens(layout)
