"""The parameter tables of FastNN's and PLSC's manuals, written out."""

# FastNN's manual: (name, type, default there). NONE where the manual names no default.
NO_DEFAULT = object()
FASTNN = [
    # data set
    ("dataset_name", str, "mock"),
    ("dataset_dir", str, None),
    ("num_sample_per_epoch", int, NO_DEFAULT),
    ("num_classes", int, 100),
    ("train_files", str, NO_DEFAULT),
    # preprocessing
    ("preprocessing_name", str, None),
    ("shuffle_buffer_size", int, 1024),
    ("num_parallel_batches", int, 8),
    ("prefetch_buffer_size", int, 32),
    ("num_preprocessing_threads", int, 16),
    ("datasets_use_caching", bool, False),
    # model
    ("task_type", str, "pretrain"),
    ("model_name", str, "inception_resnet_v2"),
    ("num_epochs", int, 100),
    ("weight_decay", float, 0.00004),
    ("max_gradient_norm", float, None),
    ("batch_size", int, 32),
    ("model_dir", str, None),
    ("ckpt_file_name", str, None),
    # learning rate
    ("warmup_steps", int, 0),
    ("warmup_scheme", str, NO_DEFAULT),
    ("decay_scheme", str, NO_DEFAULT),
    ("learning_rate_decay_factor", float, 0.94),
    ("learning_rate_decay_type", str, "exponential"),
    ("learning_rate", float, 0.01),
    ("end_learning_rate", float, 0.0001),
    # optimizer
    ("optimizer", str, "rmsprop"),
    ("adadelta_rho", float, 0.95),
    ("adagrad_initial_accumulator_value", float, 0.1),
    ("adam_beta1", float, 0.9),
    ("adam_beta2", float, 0.999),
    ("opt_epsilon", float, 1.0),
    ("ftrl_learning_rate_power", float, -0.5),
    ("ftrl_initial_accumulator_value", float, 0.1),
    ("ftrl_l1", float, 0.0),
    ("ftrl_l2", float, 0.0),
    ("momentum", float, 0.9),
    ("rmsprop_momentum", float, 0.9),
    ("rmsprop_decay", float, 0.9),
    # logs
    ("stop_at_step", int, 100),
    ("log_loss_every_n_iters", int, 10),
    ("profile_every_n_iters", int, 0),
    ("profile_at_task", int, 0),
    ("log_device_placement", bool, False),
    ("print_model_statistics", bool, False),
    ("hooks", str, "StopAtStepHook,ProfilerHook,LoggingTensorHook,CheckpointSaverHook"),
    # performance
    ("use_fp16", bool, True),
    ("loss_scale", float, 1.0),
    ("enable_paisoar", bool, True),
    ("protocol", str, "grpc"),
]
# The values that FastNN's manual lists.
FASTNN_CHOICES = {
    "task_type": "pretrain finetune",
    "warmup_scheme": "t2t",
    "decay_scheme": "luong234 luong5 luong10",
    "learning_rate_decay_type": "fixed exponential polynomial",
    "optimizer": "adadelta adagrad adam ftrl momentum sgd rmsprop adamweightdecay",
}
# PLSC's manual: the table of defaults of `plsc.config`.
PLSC = [
    ("train_batch_size", int, 128),
    ("dataset_dir", str, "./train_data"),
    ("train_image_num", int, 5822653),
    ("train_epochs", int, 120),
    ("warmup_epochs", int, 0),
    ("lr", float, 0.1),
    ("lr_steps", tuple, (100000, 160000, 220000)),
    ("val_targets", str, "lfw"),
    ("test_batch_size", int, 120),
    ("with_test", bool, True),
    ("model_name", str, "ResNet50"),  # 'RestNet50' in the manual
    ("checkpoint_dir", str, ""),
    ("model_save_dir", str, "./output"),
    ("loss_type", str, "dist_arcface"),
    ("num_classes", int, 85742),
    ("image_shape", tuple, (3, 112, 112)),
    ("margin", float, 0.5),
    ("scale", float, 64.0),
    ("emb_size", int, 512),
]
# Of PLSC's set_mixed_precision.
PRECISION_DEFAULTS = {
    "init_loss_scaling": 1.0,
    "incr_every_n_steps": 2000,
    "decr_every_n_nan_or_inf": 2,
    "incr_ratio": 2.0,
    "decr_ratio": 0.5,
    "use_dynamic_loss_scaling": True,
    "amp_lists": "",
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
