"""The parameter tables of FastNN's and PLSC's manuals, as name=default by type."""

# FastNN's manual; a name alone has no default there.
FASTNN = {
    str: """
    dataset_name=mock dataset_dir=None train_files preprocessing_name=None
    task_type=pretrain model_name=inception_resnet_v2 model_dir=None ckpt_file_name=None
    warmup_scheme decay_scheme learning_rate_decay_type=exponential optimizer=rmsprop
    hooks=StopAtStepHook,ProfilerHook,LoggingTensorHook,CheckpointSaverHook
    protocol=grpc
    """,
    int: """
    num_sample_per_epoch num_classes=100 shuffle_buffer_size=1024 num_parallel_batches=8
    prefetch_buffer_size=32 num_preprocessing_threads=16 num_epochs=100 batch_size=32
    warmup_steps=0 stop_at_step=100 log_loss_every_n_iters=10 profile_every_n_iters=0
    profile_at_task=0
    """,
    float: """
    weight_decay=0.00004 max_gradient_norm=None learning_rate_decay_factor=0.94
    learning_rate=0.01 end_learning_rate=0.0001 adadelta_rho=0.95
    adagrad_initial_accumulator_value=0.1 adam_beta1=0.9 adam_beta2=0.999
    opt_epsilon=1.0 ftrl_learning_rate_power=-0.5 ftrl_initial_accumulator_value=0.1
    ftrl_l1=0.0 ftrl_l2=0.0 momentum=0.9 rmsprop_momentum=0.9 rmsprop_decay=0.9
    loss_scale=1.0
    """,
    bool: """
    datasets_use_caching=False log_device_placement=False print_model_statistics=False
    use_fp16=True enable_paisoar=True
    """,
}
# The values that FastNN's manual lists.
FASTNN_CHOICES = {
    "task_type": "pretrain finetune",
    "warmup_scheme": "t2t",
    "decay_scheme": "luong234 luong5 luong10",
    "learning_rate_decay_type": "fixed exponential polynomial",
    "optimizer": "adadelta adagrad adam ftrl momentum sgd rmsprop adamweightdecay",
}
# PLSC's manual: the table of defaults of `plsc.config`, and set_mixed_precision. The
# name of the network is 'RestNet50' there.
PLSC = {
    str: """
    dataset_dir=./train_data val_targets=lfw model_name=ResNet50 checkpoint_dir=
    model_save_dir=./output loss_type=dist_arcface amp_lists=
    """,
    int: """
    train_batch_size=128 train_image_num=5822653 train_epochs=120 warmup_epochs=0
    lr_steps=100000,160000,220000 test_batch_size=120 num_classes=85742
    image_shape=3,112,112 emb_size=512 incr_every_n_steps=2000 decr_every_n_nan_or_inf=2
    """,
    float: "lr=0.1 margin=0.5 scale=64 init_loss_scaling=1 incr_ratio=2 decr_ratio=0.5",
    bool: "with_test=True use_dynamic_loss_scaling=True",
}
# Where the default here is neither PLSC's nor FastNN's, and why.
OURS = {
    # Each loss has its own margin; None is 0.5 for PLSC's.
    "margin": None,
    # PLSC's 512 and 3,112,112 for face networks.
    "emb_size": None,
    "image_shape": (),
    # Empty texts and lists stand for None.
    "model_dir": "",
    "train_files": (),
    # PLSC's optimizer and schedule, which its manual describes in words.
    "optimizer": "momentum",
    "weight_decay": 5e-4,
    "learning_rate_decay_type": "piecewise",
    "learning_rate_decay_factor": 0.1,
    "warmup_scheme": "linear",
    "decay_scheme": None,
    # PLSC trains for epochs and in float32.
    "stop_at_step": 0,
    "use_fp16": False,
}


def rows(table):
    """Returns [(name, type, default as text; None without one)]."""
    words = [(word, kind) for kind, text in table.items() for word in text.split()]
    split = [(*word.partition("="), kind) for word, kind in words]
    return [(name, kind, text if sign else None) for name, sign, text, kind in split]
