#!/bin/bash
# Stage 2 of dimension-reduction training: from a checkpoint of stage 1, in the dimensions
# that its snapshots spread in.
#
#   bash scripts/run_stage_2.sh DATA CKPT [pca_mat.npy] [option ...]
#
# DATA: as in stage 1, and so are the options. CKPT: a checkpoint, or the folder of the
# run, which has the snapshots beside it. pca_mat.npy: the projection, if it was made
# before; it is kept in the folder of stage 2.
set -euo pipefail

if [ $# -lt 2 ]; then
  echo "usage: bash run_stage_2.sh DATA CKPT [pca_mat.npy] [option ...]" >&2
  exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

data=$1 checkpoint=${2%/}
shift 2
run=$checkpoint
[ ! -e "$checkpoint/manifest.json" ] || run=$(dirname "$checkpoint")
[ "$(basename "$run")" != snapshots ] || run=$(dirname "$run")
from=("--checkpoint_dir=$checkpoint" "--weight_load_dir=$run/snapshots")
if [ "$data" != mock ]; then
  [ -d "$data" ] || { echo "run_stage_2.sh: no folder '$data'" >&2; exit 2; }
  from+=("--dataset_name=folder" "--dataset_dir=$data")
fi
if [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; then
  from+=("--pca_mat_path=$1")
  shift
fi
exec python -m plsc_tf.train "--flagfile=$root/hparams/dim_reduce_stage2.cfg" \
  "${from[@]}" "$@"
