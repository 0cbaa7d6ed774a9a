"""The names and rules of the settings."""

import dataclasses

import pytest

from plsc_tf.options.other_systems import EXPLAINED, RENAMED, unknown_option
from plsc_tf.options.settings import ALL, Settings, known_options, select


def test_settings_are_equal_by_value_and_cannot_be_changed():
    settings = Settings.from_values(seed=3)
    assert settings == Settings().replace(seed=3) != Settings()
    assert Settings.from_values(**settings.as_dict()) == settings
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.training.seed = 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batchsize": 3}, "unknown option 'batchsize'. Did you mean 'batch_size'"),
        ({"lr": 0.1, "learning_rate": 0.2}, "set twice"),
        ({"image_shape": (112, 112, 3)}, "example 3,112,112.*=112,112,3"),
        ({"image_shape": (1, 28, 28)}, "3 channels"),
        ({"lr_steps": (5, 5)}, "increasing"),
        ({"lr_epochs": (2,), "learning_rate_decay_type": "cosine"}, "lr_epochs needs"),
        ({"warmup_epochs": 1, "warmup_steps": 5}, "Set only one"),
        ({"decay_scheme": "luong7"}, "luong5, luong10, luong234"),
        (
            {"decay_scheme": "luong5", "learning_rate_decay_type": "fixed"},
            "decay_scheme replaces",
        ),
        ({"loss_type": "dist_softmax", "sub_centers": 3}, "sub_centers.*=dist_softmax"),
        ({"task_type": "finetune"}, "needs checkpoint_dir"),
        ({"ckpt_file_name": "step_00000100"}, "ckpt_file_name needs checkpoint_dir"),
        ({"mixup": 0.2, "sampling": "per_identity"}, "per_identity"),
        ({"model_save_dir": ""}, "folder of the run"),
        ({"model_options": "width"}, "key=value"),
        ({"model_options": "a=1,a=2"}, "each valid and once"),
        *(
            ({name: text}, f"{name} must be layer:factor.*conv1:0.1")
            for name in ("learning_rate_factors", "weight_decay_on")
            for text in ("conv1", "conv1:", "conv1:x", ":0.1", "conv1:-1", "conv1:nan")
        ),
        ({"weight_decay_on": "(:1"}, "must be layer:factor"),
        # Precision.
        ({"use_fp16": True, "use_bf16": True}, "not both"),
        ({"loss_scale": 0.5}, "Received: loss_scale=0.5"),
        ({"loss_scale": 128, "init_loss_scaling": 2}, "not both.*128.0"),
        ({"amp_lists": "Conv2D"}, "Received: item='Conv2D'"),
        ({"amp_lists": "grey:Conv2D"}, "Received: item='grey:Conv2D'"),
        ({"amp_lists": "white:Conv2D,,Dense"}, "Received: item='white:Conv2D,,Dense'"),
        ({"amp_level": "O0", "use_bf16": True}, "amp_level=O0 is float32"),
        ({"amp_level": "O2", "use_bf16": True}, "Set use_fp16 or use_bf16"),
        ({"amp_level": "O2", "use_fp16": False}, "use_fp16 contradicts amp_level"),
        # The head.
        ({"loss_type": "cosface", "margin": 0.3}, "margin is for arcface,adaface"),
        ({"loss_type": "adaface", "margin3": 0.3}, "margin3 is for arcface,cosface"),
        ({"loss_type": "adaface", "margin": 1.0}, "below 1"),
        ({"magface_norms": (110, 10)}, "magface_norms=110.0,10.0"),
        ({"magface_margins": (0.4,)}, "two numbers"),
        (
            {"loss_type": "magface", "margin_gradient": "straight_through"},
            "as in arcface_torch",
        ),
        (
            {"loss_type": "dist_softmax", "interclass_filtering_threshold": 0.4},
            "cosines, which softmax does not have",
        ),
        ({"sample_ratio": 0.1, "label_smoothing": 0.1}, "sees only a sample"),
        ({"loss_type": "arcface", "sample_rate": 0.1}, "put dist_ before"),
        ({"loss_type": "softmax", "head_tile_rows": 9}, "put dist_ before"),
        # Dimension reduction.
        (
            {"boost_config_dict": "{'boots': {'mode': 'auto'}}"},
            "boots.mode='auto'.*Did you mean 'boost.mode'",
        ),
        ({"boost_config_dict": "{'dim_reduce': {'roh': 1}}"}, "dim_reduce.roh=1"),
        ({"boost_config_dict": "{'boost': {'adasum': True}}"}, "adasum=True"),
        ({"boost_config_dict": "{"}, "must be a dictionary .* in JSON or Python"),
        ({"boost_config_dict": "[1]"}, r"must be a dictionary.*\[1\]"),
        ({"boost_config_dict": "{'dim_reduce': {'rho': 'x'}}"}, "dim_reduce_rho must"),
        ({"boost_config_dict": "{'dim_reduce': 3}"}, "dictionary of dictionaries.*3"),
        ({"dim_reduce": True}, "needs weight_load_dir .the snapshots of stage 1"),
        (
            {"dim_reduce": True, "boost_config_dict": '{"boost":{"dim_reduce":false}}'},
            "dim_reduce=True, but boost_config_dict sets False",
        ),
        ({"snapshot_every_n_steps": 2, "snapshots_per_epoch": 2}, "only one of"),
        (
            {"rho": 0.3, "boost_config_dict": "{'dim_reduce': {'rho': 0.4}}"},
            "contradicts boost_config_dict",
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Settings.from_values(**values)


def test_model_options_become_arguments():
    settings = Settings.from_values(
        model_options="width=32, depths=1-1-2,rate=0.5,pad=-1,eps=1e-5,se=true,act=relu"
    )
    assert settings.model.parsed("model_options") == {
        "width": 32,
        "depths": (1, 1, 2),
        "rate": 0.5,
        "pad": -1,
        "eps": 1e-5,
        "se": True,
        "act": "relu",
    }
    assert Settings().model.parsed("model_options") == {}


def test_every_option_has_a_help_text_and_a_group():
    items = [item for name in ALL for item in select([name])]
    assert all(len(item.help) > 8 and item.group in ALL for item in items)
    names = [name for item in items for name in (item.name, *item.aliases)]
    assert len(set(names)) == len(names)


def test_renamed_options_exist():
    assert set(RENAMED.values()) <= set(known_options())


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("class_num", "'num_classes'"),
        ("set_class_num", "'num_classes'"),
        ("val_target", "'val_targets'"),
        ("Batch-Size", "'batch_size'"),
        ("eval_files", "val_targets"),
        ("mixed_precision", "'use_fp16'"),
        ("margin_list", "margin1, margin and margin3"),
        ("set_distfc_attr", "head_initializer"),
        ("u_margin", "magface_margins"),
    ],
)
def test_names_of_other_systems_are_explained(name, advice):
    known = {name for name in known_options() if name not in EXPLAINED}
    assert advice in unknown_option(name, known)


@pytest.mark.parametrize("number", [85742, 85743])
def test_an_option_at_its_default_counts_as_given_all_the_same(number):
    settings = Settings.from_values(num_classes=number, lr=0.1)
    assert settings.given == {"num_classes", "learning_rate"}
    assert settings.if_given("num_classes") == number
    assert settings.replace(batch_size=64).if_given("batch_size") is None


def test_the_values_of_another_run_take_the_place_of_those_not_given():
    settings = Settings.from_values(seed=0, margin=0.3)
    stored = {"seed": 7, "lr_steps": [5, 9], "margin": 0.4, "gone": 1}
    merged = settings.merged(stored, ["seed", "lr_steps", "batch_size", "gone"])
    values = merged.as_dict()
    assert (values["seed"], values["lr_steps"], values["margin"]) == (0, (5, 9), 0.3)


def test_options_of_other_systems_are_translated_and_stay_given():
    settings = Settings.from_values(amp_level="O2", enable_paisora="true", ps_hosts="a")
    assert settings.given == {"use_fp16"} and settings.precision.use_fp16
    assert settings.ignored == {"enable_paisoar", "ps_hosts"}


def precision(**options):
    return Settings.from_values(**options).precision


@pytest.mark.parametrize(
    ("text", "white", "black"),
    [
        ("", (), ()),
        ("white:Conv2D,Dense;black:PReLU", ("Conv2D", "Dense"), ("PReLU",)),
        (" black : PReLU , stem_conv ; ", (), ("PReLU", "stem_conv")),
    ],
)
def test_lists_of_layers(text, white, black):
    lists = precision(amp_lists=text).parsed("amp_lists")
    assert lists == {"white": white, "black": black}


@pytest.mark.parametrize("loss_scale", [0, 1])
def test_no_fixed_scale_goes_with_plscs_dynamic_one(loss_scale):
    assert precision(loss_scale=loss_scale, init_loss_scaling=1024)


def test_mindspores_levels_are_precisions():
    levels = {"O0": "float32", "O1": "float16", "o2": "float16", "O3": "float16"}
    for level, dtype in levels.items():
        settings = Settings.from_values(amp_level=level)
        assert settings.precision.dtype == dtype
        assert settings.replace(seed=1).precision.dtype == dtype
