"""Names that are not options here: other systems' names, and misspelled ones.

The tables hold names of PLSC 0.1 and 0.2 (`Entry.set_*` without "set_"), PAI FastNN's
and MindSpore's hyper-parameter files, arcface_torch's configs, and the command lines of
AdaFace and MagFace.
"""

from collections.abc import Collection

from plsc_tf.hints import nearest, plain

# Options that exist here under another name and need no change of value.
RENAMED = {
    "class_num": "num_classes",
    "data_dir": "dataset_dir",
    "epochs": "num_epochs",
    "h": "adaface_h",
    "lambda_g": "magface_lambda_g",
    "log_period": "log_loss_every_n_iters",
    "log_trainable_vars_statistics": "print_model_statistics",
    "loss": "loss_type",
    "lr_decay_factor": "learning_rate_decay_factor",
    "max_last_checkpoint_num": "keep_checkpoint_max",
    "mixed_precision": "use_fp16",
    "model": "model_name",
    "network": "model_name",
    "num_epoch": "num_epochs",
    "num_image": "num_sample_per_epoch",
    "output": "model_save_dir",
    "output_dir": "model_save_dir",
    "step_boundaries": "lr_steps",
    "steps": "stop_at_step",
    "t_alpha": "adaface_t_alpha",
    "test_period": "eval_every_n_steps",
    "train_steps": "stop_at_step",
    "val_target": "val_targets",
    "warmup_epoch": "warmup_epochs",
}

# Accepted, so that files of other systems work as they are, but without effect: the
# log gives the reason.
_PAISOAR = "PAISoar is not used: all GPUs of a machine train together by themselves"
_TRANSPORT = "TensorFlow chooses how workers communicate; see communication"
_THREADS = "TensorFlow chooses for the machine; {} in the environment changes it"
IGNORED = {
    # FastNN
    "enable_paisoar": f"{_PAISOAR} (num_replicas)",
    "protocol": _TRANSPORT,
    "rdma_driver_config": _TRANSPORT,
    "communication_policy": "communication=nccl or ring chooses it here",
    "tensor_fusion_max_bytes": "gradient_bucket_mb chooses it here",
    "num_loss_chunks": "gradient_accumulation_steps cuts a batch into parts here",
    "ps_hosts": "there are no parameter servers: each worker holds its share of the "
    "classes",
    "inter_op_parallelism_threads": _THREADS.format("TF_NUM_INTEROP_THREADS"),
    "intra_op_parallelism_threads": _THREADS.format("TF_NUM_INTRAOP_THREADS"),
    # MindSpore
    "drop_overflow_update": "a step that is not finite is never applied; see "
    "on_nonfinite",
    "device_num": "num_replicas and the options of the cluster decide here",
}
# Also as FastNN's sample file spells it, and as MindSpore's dictionary does.
_IGNORED_ALIASES = {"enable_paisora": "enable_paisoar", "device_number": "device_num"}

# Names that need more than another name.
EXPLAINED = {
    "distfc_attr": "PLSC's set_distfc_attr: set head_initializer, head_initial_bias, "
    "head_learning_rate_factor and head_weight_decay.",
    "eval_files": "FastNN's eval_files: name verification sets in val_targets.",
    "file_pattern": "FastNN's file_pattern: list the files in train_files.",
    "gradient_acc": "arcface_torch's gradient_acc: multiply batch_size by it, and set "
    "gradient_accumulation_steps to it; batch_size counts all parts here.",
    "gpus": "Use num_replicas, the number of GPUs.",
    "l_a": "MagFace's l_a and u_a are magface_norms=10,110.",
    "l_margin": "MagFace's l_margin and u_margin are magface_margins=0.45,0.8.",
    "margin_list": "arcface_torch's margin_list is margin1, margin, margin3.",
    "model_parallel": "PLSC 0.2's model_parallel: use loss_type=dist_arcface, or "
    "another loss with dist_ before it.",
    "num_gpus": "Use num_replicas, the number of GPUs.",
    "resume": "A run resumes by itself in its model_save_dir; --restart starts over.",
    "u_a": "MagFace's l_a and u_a are magface_norms=10,110.",
    "u_margin": "MagFace's l_margin and u_margin are magface_margins=0.45,0.8.",
}


def ignored_name(name: str) -> str | None:
    """Returns the key of IGNORED that a name means, or None."""
    name = _IGNORED_ALIASES.get(name, name)
    return name if name in IGNORED else None


def nearest_option(name: str, names: Collection[str]) -> str | None:
    """Returns the option that `name` probably means, or None.

    Args:
        name: as the user wrote it.
        names: every option and alias.
    """
    name = plain(name).removeprefix("set_")
    if name in names:
        return name
    if RENAMED.get(name) in names:
        return RENAMED[name]
    return next(iter(nearest(name, names)), None)


def unknown_option(name: str, names: Collection[str]) -> str:
    """Returns the sentence for an unknown option, with the best advice.

    Args:
        name: as the user wrote it, without dashes.
        names: every option and alias.
    """
    sentence = f"unknown option '{name}'."
    word = plain(name).removeprefix("set_")
    if word in EXPLAINED:
        return f"{sentence} {EXPLAINED[word]}"
    best = nearest_option(name, names)
    if best:
        return f"{sentence} Did you mean '{best}'?"
    for best in nearest(word, EXPLAINED):
        return f"{sentence} Did you mean '{best}'? {EXPLAINED[best]}"
    return sentence
