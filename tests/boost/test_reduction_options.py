"""The options of both stages, in their own and in MindSpore's form."""

import json

import pytest

from plsc_tf.entry import Entry
from plsc_tf.options.settings import Settings

# The tutorial's dictionary, as it stands there.
TUTORIAL = {
    "boost": {"mode": "manual", "dim_reduce": True},
    "common": {"device_num": 8},
    "dim_reduce": {
        "rho": 0.55,
        "gamma": 0.9,
        "alpha": 0.001,
        "sigma": 0.4,
        "n_component": 32,
        "pca_mat_path": None,
        "weight_load_dir": "./checkpoint_stage_1/checkpoint_pca",
        "timeout": 1200,
    },
}


def boost(**values):
    return Settings.from_values(**values).boost


@pytest.mark.parametrize("text", [json.dumps(TUTORIAL), str(TUTORIAL)])
def test_the_tutorials_dictionary_is_read(text):
    found = boost(boost_config_dict=text, boost_level="O1")
    assert found.reduces and found.boost_config_dict == ""
    assert found.weight_load_dir == "./checkpoint_stage_1/checkpoint_pca"
    assert (found.n_component, found.dim_reduce_timeout) == (32, 1200.0)
    assert found.pca_mat_path == ""


def test_both_spellings_mean_the_same():
    code = {**TUTORIAL, "common": {"device_number": 4}}
    code["dim_reduce"] = {"n_components": 16, "weight_load_dir": "w"}
    found = boost(boost_config_dict=str(code))
    assert found.n_component == 16
    named = boost(dim_reduce=True, n_components=16, weight_load_dir="w", device_num=4)
    assert named == found


def test_names_of_the_tutorial_are_options():
    found = boost(rho=0.4, gamma=0.5, alpha=0.0, sigma=0.3, timeout=5, device_number=2)
    assert (found.dim_reduce_rho, found.dim_reduce_alpha) == (0.4, 0.0)
    assert (found.dim_reduce_gamma, found.dim_reduce_sigma) == (0.5, 0.3)
    assert found.dim_reduce_timeout == 5.0


def test_the_level_and_another_mode_switch_it_off():
    assert not boost(boost_config_dict=str(TUTORIAL), boost_level="O0").reduces
    assert not boost(dim_reduce=True, boost_level="O0").reduces
    assert not boost(boost_level="O2").reduces
    other = {"boost": {"mode": "auto", "dim_reduce": True, "less_bn": False}}
    assert not boost(boost_config_dict=str(other)).reduces


def test_entry_takes_the_dictionary_itself():
    assert Entry(boost_config_dict=TUTORIAL, boost_level="O1").settings.boost == boost(
        boost_config_dict=str(TUTORIAL), boost_level="O1"
    )
