"""The command line: forms, errors, help, exit status."""

import pytest
from absl import flags

from plsc_tf import serve
from plsc_tf.options import cli
from plsc_tf.options.settings import Settings, known_options
from tests import commands, programs


@pytest.mark.parametrize(
    "arguments",
    [
        ["--batch_size=3", "--calc_acc", "--nowith_test"],
        ["--batch_size", "3", "--calc_acc=yes", "--with_test=0"],
        ["-train_batch_size=3", "--calc_acc=True", "--with_test=False"],
        # The later one wins.
        ["--batch_size=9", "--train_batch_size=3", "--calc_acc", "--nowith_test"],
    ],
)
def test_forms_of_an_option(arguments):
    expected = Settings.from_values(batch_size=3, calc_acc=True, with_test=False)
    assert cli.parse(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["batchsize=3"], "'batchsize=3'; did you mean --batch_size=3?"),
        (["--seed=1", "train"], "unexpected argument 'train'"),
        (["hparams/ms1m.cfg"], "did you mean --flagfile=hparams/ms1m.cfg?"),
        (["--with_test", "false"], "did you mean --with_test=false?"),
        (["--batchsize=3"], "unknown option 'batchsize'. Did you mean 'batch_size'?"),
        (["--batch_size"], "'batch_size' needs a value: a whole number"),
        (["--batch_size=x"], "Received: batch_size='x'"),
        (["--lr=x"], "learning_rate must be a number"),
        (["--loss_type=cosfce"], "one of softmax, arcface"),
        (["--undefok=foo", "--foo=1"], "unknown option 'undefok'"),
        (["--flagfile="], "--flagfile needs a path"),
        (["--", "--seed=1"], "unexpected argument"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message):
    with pytest.raises(cli.UsageError) as caught:
        cli.parse(arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_groups_limit_the_command_line_but_not_the_files(tmp_path):
    path = tmp_path / "run.cfg"
    path.write_text("optimizer=sgd")
    groups = ("dataset", "evaluation")
    settings = cli.parse([f"--flagfile={path}", "--val_targets=a,b"], groups)
    assert settings.optimizer.optimizer == "sgd"
    assert settings.evaluation.val_targets == ("a", "b")


def test_the_global_flags_of_absl_stay_untouched():
    before = set(flags.FLAGS)
    cli.parse(["--seed=3"])
    assert set(flags.FLAGS) == before
    assert cli.parse([]).training.seed == 0


def test_help_lists_every_option_with_its_default():
    text = cli.help_text(usage="Does things.", width=88)
    assert text.startswith("Does things.")
    for item in known_options().values():
        assert f"  --{item.name}={item.format(item.default)}" in text
    assert max(map(len, text.splitlines())) <= 88
    assert "learning_rate:" not in cli.help_text(groups=("dataset",))


@pytest.mark.parametrize("flag", ["--help", "-h", "--helpfull"])
def test_help_ends_well(capsys, flag):
    with pytest.raises(SystemExit) as caught:
        cli.parse(["--batch_size=x", flag], usage="Does things.")
    assert caught.value.code == 0
    assert "Does things." in capsys.readouterr().out


# Commands in processes of their own: main() sets up logging and ends the process.
PROGRAM = """
import sys
from plsc_tf import serve
from plsc_tf.options import cli

def command(settings):
    \"\"\"Fails as the environment asks.\"\"\"
    import os
    assert "tensorflow" not in sys.modules, "parsing imported TensorFlow"
    from absl import logging
    logging.info("seed is %d", settings.training.seed)
    {body}

cli.main(command, doc="Tries things.")
"""


def run(body, *arguments, **environment):
    words = "-c", PROGRAM.format(body=body), *arguments
    return programs.run(*words, status=None, TF_CPP_MIN_LOG_LEVEL=None, **environment)


def test_a_command_gets_the_settings_without_tensorflow():
    done = run("sys.stdout.write(str(settings.training.batch_size))", "--batch_size=5")
    assert (done.status, done.out) == (0, "5")
    assert done.err.endswith("seed is 0\n")
    assert len(done.err.splitlines()) == 1


def test_usage_errors_end_with_status_2():
    done = run("", "batchsize=3")
    assert done.status == 2
    assert done.err.splitlines() == [
        "plsc_tf: error: unexpected argument 'batchsize=3'; did you mean "
        "--batch_size=3?",
        "--help lists the options.",
    ]
    # Whoever reads the log of the job would have the password.
    assert "hidden" not in run("", "fs_ugi=user,hidden").err


NOWHERE = "open('/nowhere/at/all')", "No such file or directory: /nowhere/at/all"


@pytest.mark.parametrize(
    ("body", "said", "asked", "status"),
    [
        ("raise ValueError('bad value')", "plsc_tf: error: bad value\n", None, 1),
        (*NOWHERE, None, 1),
        ("raise ValueError('bad')", "Traceback", "1", 1),
        ("{}['missing']", "Traceback", None, 1),
        ("raise KeyboardInterrupt", "", None, 130),
    ],
)
def test_tracebacks_are_of_bugs_and_on_request(body, said, asked, status):
    done = run(body, PLSC_TF_TRACEBACK=asked)
    assert done.status == status and said in done.err
    assert ("Traceback" in done.err) == (said == "Traceback")


def test_errors_of_tensorflow_are_one_block(capsys):
    def command(_):
        import tensorflow as tf

        tf.function(lambda: tf.io.read_file("/nowhere/at/all"))()

    with pytest.raises(SystemExit, match="1"), commands.kept_state():
        cli.main(command, argv=[])
    assert capsys.readouterr().err.splitlines() == [
        "plsc_tf: error: /nowhere/at/all; No such file or directory",
        "(PLSC_TF_TRACEBACK=1 shows where it happened.)",
    ]


# It came with TensorFlow's traceback, and some conversions did not end.
def test_an_error_in_a_function_of_a_data_set_is_one_line_and_the_end():
    body = (
        "import tensorflow as tf\n"
        "    def read(i): return tf.numpy_function(lambda i: int('x'), [i], tf.int64)\n"
        "    list(tf.data.Dataset.range(1 << 20).map(read, 4).prefetch(4))"
    )
    done = run(body)
    assert done.status == 1
    lines = [line for line in done.err.splitlines() if "plsc_tf: error" in line]
    assert lines == done.err.splitlines()[-2:-1], done.err
    assert lines[0].startswith("plsc_tf: error: invalid literal for int()")


def test_options_without_effect_are_told():
    named = ("--seed=1", "--loss_type=softmax", "--with_test=false")
    done = run("", "--enable_paisora=true", "--protocol=grpc+verbs", *named)
    assert done.status == 0
    assert [line.split(" ", 1)[1] for line in done.err.splitlines()] == [
        "No effect here: enable_paisoar (PAISoar is not used; all GPUs of a machine "
        "train together); protocol (TensorFlow chooses "
        "how workers communicate; see communication).",
        "seed is 1",
    ]


def test_serve_takes_model_dir_for_its_own_folder():
    words = ["--model_dir=a", "--model_dir", "b", "--port=1", "--model_dirs=c"]
    expected = ["--model_path=a", "--model_path", "b", "--port=1", "--model_dirs=c"]
    assert serve.arguments(words) == expected
    settings = cli.parse(serve.arguments(["--model_dir=face"]), serve.GROUPS)
    assert settings.server.model_path == "face"
    assert settings.checkpoints.checkpoint_dir == ""
