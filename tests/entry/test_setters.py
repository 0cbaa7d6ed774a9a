"""PLSC's setters, each against the option that it sets; no TensorFlow."""

import types

import pytest

from plsc_tf import Entry

# Stands for keras.regularizers.L2(1e-4), whose import takes seconds.
L2 = types.SimpleNamespace(l2=1e-4)
# The fields of Paddle's ParamAttr.
PARAM_ATTR = {"name": "fc", "initializer": "he_normal"}
PARAM_ATTR |= {"learning_rate": 10.0, "regularizer": 1e-4}
# The parameters of set_mixed_precision, in order.
PRECISION = {
    **{"use_fp16": True, "init_loss_scaling": 8.0, "incr_every_n_steps": 100},
    **{"decr_every_n_nan_or_inf": 1, "incr_ratio": 4.0, "decr_ratio": 0.25},
    **{"use_dynamic_loss_scaling": True, "amp_lists": "white:Dense"},
}
# Setter, its arguments, and the options that follow.
SETTERS = [
    ("set_val_targets", ("lfw, cfp_fp",), {"val_targets": ("lfw", "cfp_fp")}),
    ("set_train_batch_size", (64,), {"batch_size": 64}),
    ("set_test_batch_size", (60,), {"test_batch_size": 60}),
    ("set_model_save_dir", ("./a",), {"model_save_dir": "./a"}),
    ("set_checkpoint_dir", ("./a/0/",), {"checkpoint_dir": "./a/0/"}),
    ("set_dataset_dir", ("faces",), {"dataset_dir": "faces"}),
    ("set_train_image_num", (7,), {"num_sample_per_epoch": 7}),
    ("set_image_num", (7,), {"num_sample_per_epoch": 7}),
    ("set_calc_acc", (True,), {"calc_acc": True}),
    ("set_class_num", (9,), {"num_classes": 9}),
    ("set_emb_size", (128,), {"emb_size": 128}),
    ("set_model_name", ("ResNet101",), {"model_name": "ResNet101"}),
    ("set_train_epochs", (3,), {"num_epochs": 3, "stop_at_step": 0}),
    ("set_train_steps", (30,), {"num_epochs": 30, "stop_at_step": 30}),
    ("set_warmup_epochs", (2,), {"warmup_epochs": 2.0}),
    ("set_loss_type", ("dist_softmax",), {"loss_type": "dist_softmax"}),
    (
        "set_loss_type",
        ("arcface", 0.9, 0.4, 0.1),
        {"margin1": 0.9, "margin": 0.4, "margin3": 0.1},
    ),
    ("set_loss_type", ("sphereface", 1.5), {"margin1": 1.5, "margin3": None}),
    ("set_image_shape", ([3, 64, 48],), {"image_shape": (3, 64, 48)}),
    ("set_with_test", (False,), {"with_test": False}),
    ("set_distfc_attr", (0.1, 0), {"head_initializer": "random_normal(stddev=0.1)"}),
    ("set_distfc_attr", ("zeros",), {"head_initializer": "zeros"}),
    ("set_distfc_attr", (None, "ones"), {"head_initial_bias": 1.0}),
    ("set_distfc_attr", ({"trainable": False},), {"head_learning_rate_factor": 0.0}),
    # Keras's penalty is 1e-4 x sum(w^2), whose derivative is 2e-4 x w.
    ("set_distfc_attr", ({"regularizer": L2},), {"head_weight_decay": 2e-4}),
    (
        "set_distfc_attr",
        (PARAM_ATTR, {"initializer": 0.5}),
        {
            "head_initializer": "he_normal",
            "head_learning_rate_factor": 10.0,
            "head_weight_decay": 1e-4,
            "head_initial_bias": 0.5,
        },
    ),
    ("set_lr", (0.2,), {"learning_rate": 0.2}),
    ("set_lr_steps", ((5, 9),), {"lr_steps": (5, 9)}),
    ("set_lr_decay_factor", (0.2,), {"learning_rate_decay_factor": 0.2}),
    ("set_step_boundaries", ([4, 8],), {"lr_steps": (4, 8)}),
    ("set_model_parallel", (False,), {"loss_type": "arcface"}),
    ("set_model_parallel", (True,), {"loss_type": "dist_arcface"}),
    ("set_sample_ratio", (0.1,), {"sample_rate": 0.1}),
    ("set_max_last_checkpoint_num", (3,), {"keep_checkpoint_max": 3}),
    ("set_log_period", (200,), {"log_loss_every_n_iters": 200}),
    ("set_test_period", (500,), {"eval_every_n_steps": 500}),
    ("set_input_info", ([{"name": "image", "shape": [-1, 3, 96, 96]}],), {}),
    ("set_use_quant", (True,), {}),
    (
        "set_hdfs_info",
        ("hdfs://name:9000", "me,secret", "saved"),
        {"fs_name": "hdfs://name:9000", "fs_dir_for_save": "saved"},
    ),
    ("set_mixed_precision", tuple(PRECISION.values()), PRECISION),
]
# Attributes of PLSC 0.1.1 and 0.2 that are methods.
PLSC = """set_val_targets set_train_batch_size set_mixed_precision set_test_batch_size
set_hdfs_info set_model_save_dir set_calc_acc set_dataset_dir set_train_image_num
set_class_num set_emb_size set_model set_train_epochs set_checkpoint_dir
set_warmup_epochs set_loss_type set_image_shape set_optimizer set_with_test
set_distfc_attr convert_for_prediction predict test train set_model_name set_use_quant
set_input_info set_log_period set_test_period set_lr_decay_factor set_step_boundaries
set_model_parallel set_sample_ratio set_train_steps set_max_last_checkpoint_num"""


@pytest.mark.parametrize(("setter", "arguments", "options"), SETTERS)
def test_a_setter_sets_its_option(setter, arguments, options):
    entry = Entry()
    getattr(entry, setter)(*arguments)
    assert entry.settings.as_dict() | options == entry.settings.as_dict()
    assert "me,secret" not in repr(entry.settings)


def test_every_setter_of_plsc_is_there():
    assert not [name for name in PLSC.split() if not callable(getattr(Entry, name))]
    tried = {setter for setter, _, _ in SETTERS}
    objects = {"set_model", "set_optimizer"}
    assert {n for n in dir(Entry) if n.startswith("set_")} == tried | objects


@pytest.mark.parametrize(
    ("setter", "arguments", "words"),
    [
        ("set_train_batch_size", [0], "batch_size"),
        ("set_loss_type", ["dist_archface"], "dist_arcface"),
        ("set_input_info", [[{"shape": [-1, 1]}]], "channels, height, width"),
        ("set_distfc_attr", ["Xavier"], "param_attr must be a number"),
        ("set_val_targets", [None], "val_targets must be.*Received: .*None"),
        ("set_image_shape", [112], "image_shape must be.*112"),
        ("set_optimizer", [dict], "or an instance.* Received: optimizer=<class"),
        ("set_optimizer", [5], "a Keras optimizer.*=5[.] .* set_lr"),
        ("set_model", [5], "a BaseModel, Keras model.*=5, type=int"),
        ("set_model", ["resnet50"], r"set_model_name\('resnet50'\)"),
        ("set_model_parallel", ["no"], "model_parallel must be.*'no'"),
        ("set_input_info", [{"shape": [3, 8, 8]}], "list of dicts.*'shape'"),
        # Of the weights, and of the bias.
        ("set_distfc_attr", [{"lr": 1}], "param_attr may contain only init.*'lr'"),
        ("set_distfc_attr", [{"regularizer": "l2"}], "regularizer of the .*be.*'l2'"),
        ("set_distfc_attr", [None, "he_normal"], "bias_attr must be .*constant.*'he_n"),
        ("set_distfc_attr", [None, False], "bias_attr must be a number.*False"),
        ("set_distfc_attr", [None, {"learning_rate": 2.0}], "bias_attr may .*initiali"),
    ],
)
def test_a_wrong_value_is_refused_by_its_setter(setter, arguments, words):
    with pytest.raises(ValueError, match=words):
        getattr(Entry(), setter)(*arguments)


@pytest.mark.parametrize("path", ["my_networks.Mean", "my_networks:Mean"])
def test_a_network_may_be_given_by_its_dotted_path(path):
    entry = Entry()
    entry.set_model(path)
    assert entry.settings.model.model_name == "my_networks.Mean"
    entry.set_model(None)
    assert entry.settings == Entry().settings


def test_values_may_be_text_as_in_a_flag_file():
    entry = Entry(image_shape="3,28,28", num_classes="5", with_test="no", seed="7")
    entry.set_lr_steps("(100, 200)")
    entry.set_train_batch_size("64")
    values = entry.settings.as_dict()
    assert values["image_shape"] == (3, 28, 28)
    assert (values["num_classes"], values["with_test"], values["seed"]) == (5, False, 7)
    assert (values["lr_steps"], values["batch_size"]) == ((100, 200), 64)
    with pytest.raises(ValueError, match="num_classes must be a whole number.*'five'"):
        Entry(num_classes="five")
    with pytest.raises(ValueError, match="'nosuch'. python -m plsc_tf.train --help"):
        Entry(nosuch=1)


def test_what_the_script_sets_counts_as_given():
    entry = Entry(seed=1)
    assert entry.settings.dataset.dataset_name == "image_list"  # PLSC's
    assert entry.settings.given == {"seed"}
    entry.set_train_steps(50)
    entry.set_mixed_precision(True, incr_ratio=2.0)  # the default
    entry.set_loss_type("arcface")
    entry.set_model_parallel(True)
    entry.set_class_num(85742)  # the default
    assert entry.settings.given == {
        "seed", "stop_at_step", "use_fp16", "incr_ratio", "loss_type", "num_classes"
    }  # fmt: skip


def test_the_last_of_epochs_and_steps_counts():
    entry = Entry(train_epochs=2)
    entry.set_train_steps(50)
    assert entry.settings.training.stop_at_step == 50
    entry.set_train_epochs(4)
    values = entry.settings.as_dict()
    assert (values["num_epochs"], values["stop_at_step"]) == (4, 0)


def test_paddles_list_object_names_layers():
    lists = types.SimpleNamespace(white_list={"Dense", "Conv2D"}, black_list=None)
    entry = Entry()
    entry.set_mixed_precision(True, amp_lists=lists)
    assert entry.settings.precision.amp_lists == "white:Conv2D,Dense"


def test_values_may_be_given_by_name():
    entry = Entry()
    entry.set_class_num(num=9)
    assert entry.settings.dataset.num_classes == 9
    with pytest.raises(TypeError, match="missing a required argument: 'num'"):
        entry.set_class_num(value=9)
