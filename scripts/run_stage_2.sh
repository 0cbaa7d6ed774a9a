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
. "$(dirname "$(readlink -f "$0")")/recipe.sh"

if [ $# -lt 2 ]; then
  echo "usage: bash run_stage_2.sh DATA CKPT [pca_mat.npy] [option ...]" >&2
  exit 2
fi
recipe 2 "$1"
checkpoint=${2%/}
shift 2
run=$checkpoint
[ ! -e "$checkpoint/manifest.json" ] || run=$(dirname "$checkpoint")
[ "$(basename "$run")" != snapshots ] || run=$(dirname "$run")
from=("--checkpoint_dir=$checkpoint" "--weight_load_dir=$run/snapshots")
if [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; then
  from+=("--pca_mat_path=$1")
  shift
fi
exec python -m plsc_tf.train "${options[@]}" "${from[@]}" "$@"
