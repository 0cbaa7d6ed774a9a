"""What to say about an unknown option: the nearest one, or what became of it.

The tables hold names of other systems' options that are not flags here: PLSC 0.1 and
0.2 (`Entry.set_*` without "set_"), PAI FastNN's hyper-parameter files,
arcface_torch's configs, and the command lines of AdaFace and MagFace.
"""

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

# Options that need more than another name, or that do nothing here (yet).
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
    "resume": "A run resumes by itself in its model_save_dir; --restart starts anew.",
    "u_a": "MagFace's l_a and u_a are magface_norms=10,110.",
    "u_margin": "MagFace's l_margin and u_margin are magface_margins=0.45,0.8.",
}


def nearest_option(name, names):
    """Returns the option that `name` probably stands for, or None.

    Args:
        name: what was written.
        names: every option and alias there is.
    """
    name = plain(name).removeprefix("set_")
    if name in names:
        return name
    if RENAMED.get(name) in names:
        return RENAMED[name]
    return next(iter(nearest(name, names)), None)


def unknown_option(name, names):
    """Returns the sentence for an option nobody knows, with the best advice.

    Args:
        name: what was written, without dashes.
        names: every option and alias there is.
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
