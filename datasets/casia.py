"""CASIA-WebFace faces: label.txt and images/, or train.rec (insightface)."""

from plsc_tf.data.readers import layouts
from plsc_tf.data.request import DatasetInfo

INFO = DatasetInfo(
    description="faces of 10,572 people, aligned to 112x112",
    num_classes=10_572,
    num_examples=490_623,
    image_size=(112, 112),
    source="Yi et al.: Learning face representation from scratch, 2014; insightface",
    tfrecords=True,
)
layout = layouts.faces
examples = layouts.opens(layout)
