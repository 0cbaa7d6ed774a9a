# Chooses options by the images of the tutorial's scripts, which source this file.

# Usage: recipe STAGE DATA; sets the array `options`.
recipe() {
  local root from classes name=dim_reduce
  root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
  export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
  options=()
  if [ "$2" != mock ]; then
    [ -d "$2" ] || { echo "$(basename "$0"): no folder '$2'" >&2; exit 2; }
    from=$2
    [ ! -d "$2/train" ] || from=$2/train
    classes=$(find -L "$from" -mindepth 1 -maxdepth 1 -type d ! -name '.*' | wc -l)
    # ImageNet's: the tutorial's own settings.
    [ "$classes" != 1000 ] || name=imagenet_resnet50
    echo "$(basename "$0"): $classes classes in $from, hparams/${name}_stage$1.cfg" >&2
    options=("--dataset_name=folder" "--dataset_dir=$2")
    [ "$classes" = 0 ] || options+=("--num_classes=$classes")
  fi
  options=("--flagfile=$root/hparams/${name}_stage$1.cfg" ${options[@]+"${options[@]}"})
}
