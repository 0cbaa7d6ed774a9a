"""Downloads weights before a run and uploads the results (PLSC's set_hdfs_info).

PLSC calls `hadoop fs -get <fs_checkpoint_dir>/* <checkpoint_dir>` and `-put
<model_save_dir> <fs_dir_for_save>`, logs the command including the password, and
ignores its exit status. Here copies are verified, an error ends the run, and the
password is never sent or logged.
"""

import os

from absl import logging

from plsc_tf.requirements import require
from plsc_tf.storage import files, transfer

USER_VARIABLE = "HADOOP_USER_NAME"


def download_start(storage):
    """Sets the Hadoop user, connects to both stores and downloads the weights.

    Call it before the run uses any path: Hadoop's client reads HADOOP_USER_NAME only
    once per process.

    Args:
        storage: the `Storage` options: `fs_name`, `fs_ugi`, `fs_checkpoint_dir`,
            `fs_dir_for_save`, `checkpoint_dir`, `model_save_dir`.

    Returns:
        the number of files copied; 0 without `fs_checkpoint_dir`.

    Raises:
        ValueError: the options contradict each other.
        OSError: as for `transfer.download`.
    """
    set_user(storage)
    source = remote_dir(storage, "fs_checkpoint_dir")
    if target := remote_dir(storage, "fs_dir_for_save"):
        # This reveals errors before days of training, not after.
        files.make_dirs(target)
    return transfer.download(source, storage.checkpoint_dir) if source else 0


def upload_end(storage, skip=()):
    """Uploads the run's folder to `fs_dir_for_save` after training.

    Files that a checkpoint's manifest lists are never overwritten there; other files
    that a resumed run rewrites, such as results and logs, are.

    Args:
        storage: the `Storage` options, as for `download_start`.
        skip: name patterns of files and folders that are not uploaded.

    Returns:
        the number of files copied; 0 without `fs_dir_for_save`.

    Raises:
        OSError: as for `transfer.upload`. The run's folder is unchanged, and running
            the same command again uploads the missing files.
    """
    if not (target := remote_dir(storage, "fs_dir_for_save")):
        return 0
    return transfer.upload(
        storage.model_save_dir, target, replace_unlisted=True, skip=skip
    )


def remote_dir(storage, option):
    """Returns the full URL of `fs_checkpoint_dir` or `fs_dir_for_save`, "" if unset.

    Raises:
        ValueError: neither the option nor `fs_name` specifies the file system.
    """
    path = getattr(storage, option)
    if not path or "://" in path:
        return path
    given = {option: repr(path), "fs_name": repr(storage.fs_name)}
    rule = f"{option} needs a file system: set fs_name=hdfs://namenode:9000"
    require("://" in storage.fs_name, rule, **given)
    return f"{storage.fs_name.rstrip('/')}/{path.lstrip('/')}"


def set_user(storage):
    """Sets HADOOP_USER_NAME to the user in `fs_ugi`, unless it is already set.

    Raises:
        ValueError: there is a password without a user, or the name of a file.
    """
    user, _, password = storage.fs_ugi.partition(",")
    rule = "fs_ugi must hold user,password, or the user alone"
    fits = (user or not password) and not user.startswith("@")
    require(fits, rule, "Received: no user (the rest is hidden)")
    if not user:
        return
    if os.environ.get(USER_VARIABLE, user) != user:
        message = "Hadoop's user is %s, from HADOOP_USER_NAME, not that in fs_ugi."
        logging.warning(message, os.environ[USER_VARIABLE])
    os.environ.setdefault(USER_VARIABLE, user)
    if password:
        logging.info("The password of fs_ugi is not sent: Hadoop's client takes none.")
