"""Labeled Faces in the Wild at 112x112; train/ and val/ show different people.

8,293 images, each the center of a photograph, not aligned by landmarks. The 1,200 pairs
of pairs_val.txt show the people in val/. The protocol is not View 2, so results are not
comparable with published LFW results.
Huang, Ramesh, Berg, Learned-Miller: Labeled Faces in the Wild, University of
Massachusetts, Technical report 07-49, 2007.
"""

from plsc_tf.data.readers import layouts

INFO = layouts.DatasetInfo(num_classes=3_689, tfrecords=True)
layout = layouts.images_in_folders
