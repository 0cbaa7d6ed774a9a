"""How each line of the guides is run by test_guides_slow.py, where not as it stands.

An entry is (guide, words of the line, ...) and fits one line of that guide only.
"""

# Further options that make a command fit this machine: what the page shows is for data
# and devices that a test does not have. The last of two options of one name counts.
_NETWORK = "--image_shape=3,48,48 --model_name=resnet10 --model_options=width=8"
_SMALL = f"{_NETWORK} --num_classes=50 --emb_size=16 --batch_size=25 --num_replicas=2"
_PLSC = "--emb_size=6 --image_shape=3,16,16"
SMALLER = (
    (
        "README.md",
        "--dataset_dir=train_data --batch_size=64",
        f"{_SMALL} --num_epochs=1",
    ),
    (
        "classes.md",
        "--dataset_dir=<data with the new labels>",
        "--num_epochs=2 --allow_empty_classes",
    ),
    (
        "classes.md",
        "--num_classes=<new>",
        f"{_SMALL} --num_classes=1052 --num_epochs=1 --dataset_name=image_list "
        "--dataset_dir=train_data --allow_empty_classes",
    ),
    ("from_plsc.md", "plsc_tf.train --dataset_name=image_list", _SMALL),
    ("importing.md", "--import_from=output/119", _PLSC),
    (
        "importing.md",
        "--model_save_dir=runs/r50 ...",
        f"{_PLSC} --model_name=ResNet50 --num_classes=50 --dataset_name=image_list "
        "--dataset_dir=train_data --batch_size=25 --num_epochs=1 --val_targets=lfw",
    ),
    ("preprocessing.md", "--low_resolution=0.2", f"{_SMALL} --num_epochs=1"),
)

# What stands for a blank that only the reader can fill in.
BLANKS = {
    "<data with the new labels>": "train_data",
    "<new>": "1052",
    "<new folder>": "runs/from_classes",
}

# Commands that cannot run here, and the test that runs such a one instead.
_TWO_HOSTS = (
    "cluster/test_two_hosts.py::test_a_pulled_cable_ends_both_and_the_launchers_go_on"
)
_SLURM = "parallel/test_cluster.py::test_a_worker_of_slurm_is_found_by_its_node"
_HDFS = "hdfs/test_hdfs_training.py::test_a_run_on_hdfs_resumes_exactly"
_TORCH = (
    "importers/test_import_checkpoint.py"
    "::test_an_arcface_torch_training_embeds_and_classifies_as_there"
)
ELSEWHERE = (
    ("checkpoints.md", "--model_save_dir=hdfs://", _HDFS),
    ("hdfs.md", "--model_save_dir=hdfs://", _HDFS),
    ("importing.md", "--import_from=work_dirs/ms1mv3_r50", _TORCH),
    ("launch.md", "--cluster_node_ips=10.0.0.1,10.0.0.2", _TWO_HOSTS),
    (
        "launch.md",
        "--gpus-per-node=8 python -m plsc_tf.train --flagfile=my.cfg",
        _SLURM,
    ),
    ("launch.md", "--task_index=$SLURM_NODEID", _TWO_HOSTS),
)

# Lines without a command of ours: run as they are (True), or the test that runs such a
# line, or why none does.
_CURL = "server/test_guide.py::test_curl_lines"
OTHER_LINES = (
    ("README.md", "git clone", "CI begins with it"),
    ("README.md", "pip install -e '.[dev]' && python -m pytest", "it is what CI runs"),
    ("dimension_reduction.md", "run_stage_1.sh", True),
    ("dimension_reduction.md", "run_stage_2.sh mock output/dim_reduce_stage1 #", True),
    ("dimension_reduction.md", "pca_mat.npy", True),
    ("export.md", "curl ", "conformance/test_guide_blocks.py::test_classify_by_curl"),
    ("getting_started.md", "pip install", "CI installs what .[dev] has of it"),
    ("hdfs.md", "export JAVA_HOME", "hdfs/test_hdfs_setup.py"),
    ("hdfs.md", "export CLASSPATH", "hdfs/test_hdfs_setup.py"),
    ("importing.md", "pip install", "a download that only one format needs"),
    ("launch.md", "export NODES", "needs Slurm"),
    ("logs.md", "tensorboard --logdir", True),
    ("logs.md", "pip install visualdl", "needs other versions than TensorFlow"),
    (
        "logs.md",
        "bin/visualdl --logdir",
        "reporting/test_seen_run.py::test_visualdl_reads_its_log",
    ),
    ("serving.md", "pip install", "CI installs what .[dev] has of it"),
    ("serving.md", "FaceClassifyService", _CURL),
    ("serving.md", "face:predict", _CURL),
    ("serving.md", "models/face #", _CURL),
    ("serving.md", "face/metadata", _CURL),
    (
        "serving.md",
        "tensorflow_model_server",
        "serving/test_export_saved_model.py",
    ),
)


def of(entries, guide, line):
    """What the entries say of a line of a guide, or None."""
    found = [last for name, words, last in entries if name == guide and words in line]
    return found[0] if found else None
