#!/bin/bash
# Stage 1 of dimension-reduction training: ordinary training that keeps snapshots.
#
#   bash scripts/run_stage_1.sh [DATA [option ...]]
#
# DATA: folder with one folder of images per class, or with such folders in train/ and in
# test/, val/ or validation_preprocess/; "mock", or nothing: drawn images. The 1,000
# classes of ImageNet are trained as in the tutorial, by hparams/imagenet_resnet50_stage1.cfg,
# any others on a small network, by hparams/dim_reduce_stage1.cfg. Options are those of
# python -m plsc_tf.train, such as --model_name=resnet50 --image_shape=3,224,224.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/recipe.sh"

recipe 1 "${1:-mock}"
shift || true
exec python -m plsc_tf.train "${options[@]}" "$@"
