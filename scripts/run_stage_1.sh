#!/bin/bash
# Stage 1 of dimension-reduction training: ordinary training that keeps snapshots.
#
#   bash scripts/run_stage_1.sh [DATA [option ...]]
#
# DATA: folder with one folder of pictures per class; "mock", or nothing: drawn pictures.
# Options are those of python -m plsc_tf.train, such as --num_classes=1000
# --model_name=resnet50 --image_shape=3,224,224.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

data=${1:-mock}
shift || true
if [ "$data" = mock ]; then
  from=()
else
  [ -d "$data" ] || { echo "run_stage_1.sh: no folder '$data'" >&2; exit 2; }
  from=("--dataset_name=folder" "--dataset_dir=$data")
fi
exec python -m plsc_tf.train "--flagfile=$root/hparams/dim_reduce_stage1.cfg" \
  ${from[@]+"${from[@]}"} "$@"
