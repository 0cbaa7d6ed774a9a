"""PLSC's set_hdfs_info: weights come from a store before, and go to one after.

PLSC calls `hadoop fs -get <fs_checkpoint_dir>/* <checkpoint_dir>` and `-put
<model_save_dir> <fs_dir_for_save>`, logs the command with the password in it, and
ignores its status. Here the copies are verified, an error ends the run, and the
password goes nowhere.
"""

import os

from absl import logging

from plsc_tf.storage import files, transfer
from plsc_tf.storage.paths import scheme_of

UGI_VARIABLE = "PLSC_TF_FS_UGI"
USER_VARIABLE = "HADOOP_USER_NAME"


def download_start(storage):
    """Before a training: the user's name, both stores reached, and the download.

    Call it before the first use of any path of the run: Hadoop's client reads
    HADOOP_USER_NAME once in the life of a process.

    Args:
        storage: the `Storage` options: `fs_name`, `fs_ugi`, `fs_checkpoint_dir`,
            `fs_dir_for_save`, `checkpoint_dir`, `model_save_dir`.

    Returns:
        the `transfer.Transfer`, None without `fs_checkpoint_dir`.

    Raises:
        ValueError: the options do not go together.
        OSError: the user's file cannot be read, or as `transfer.download`.
    """
    set_user(storage)
    source = remote_dir(storage, "fs_checkpoint_dir")
    target = remote_dir(storage, "fs_dir_for_save")
    if target:
        # Errors come before days of training, not after.
        files.make_dirs(target)
    if not source:
        return None
    if not storage.checkpoint_dir:
        raise ValueError(
            "fs_checkpoint_dir is copied into checkpoint_dir: set it to a local "
            "folder. Received: checkpoint_dir=''."
        )
    return transfer.download(source, storage.checkpoint_dir)


def upload_end(storage, skip=()):
    """After a training: copies the run's folder into `fs_dir_for_save`.

    Checkpoints and all that their manifests list are never overwritten there; files
    that a resumed run writes anew, such as its results and logs, are.

    Args:
        storage: the `Storage` options, as for `download_start`.
        skip: patterns of files and folders that are not uploaded.

    Returns:
        the `transfer.Transfer`, None without `fs_dir_for_save`.

    Raises:
        OSError: as `transfer.upload`. The run's folder is as it was, and the same
            command uploads what is missing.
    """
    target = remote_dir(storage, "fs_dir_for_save")
    if not target:
        return None
    return transfer.upload(
        storage.model_save_dir, target, replace_unlisted=True, skip=skip
    )


def remote_dir(storage, option):
    """The whole address of `fs_checkpoint_dir` or `fs_dir_for_save`, "" if not set.

    Raises:
        ValueError: neither it nor `fs_name` says on which file system.
    """
    path = getattr(storage, option)
    if not path or "://" in path:
        return path
    if "://" not in storage.fs_name:
        raise ValueError(
            f"{option} needs a file system: set fs_name=hdfs://namenode:9000, or begin "
            f"{option} with that. Received: {option}={path!r}, "
            f"fs_name={storage.fs_name!r}."
        )
    return f"{storage.fs_name.rstrip('/')}/{path.lstrip('/')}"


def set_user(storage):
    """Makes the user of `fs_ugi` Hadoop's, unless HADOOP_USER_NAME names one.

    Raises:
        ValueError: the user's name is empty.
        OSError: its file cannot be read.
    """
    user, password = _user_and_password(storage.fs_ugi)
    if not user:
        return
    if os.environ.get(USER_VARIABLE, user) != user:
        logging.warning(
            "Hadoop's user is %s, of HADOOP_USER_NAME; that of fs_ugi is not used.",
            os.environ[USER_VARIABLE],
        )
    os.environ.setdefault(USER_VARIABLE, user)
    names = (storage.fs_name, storage.fs_checkpoint_dir, storage.fs_dir_for_save)
    if password and any(scheme_of(name) for name in names):
        logging.info(
            "The password of fs_ugi is not sent: Hadoop's client takes the user's "
            "name, or a Kerberos ticket (kinit)."
        )


def _user_and_password(given):
    """Returns the two parts of `fs_ugi`, of its file, or of the environment."""
    text, origin = given.reveal(), "fs_ugi"
    if not text:
        text, origin = os.environ.get(UGI_VARIABLE, ""), UGI_VARIABLE
    if text.startswith("@"):
        origin = f"the file {text[1:]}"
        with open(os.path.expanduser(text[1:]), encoding="utf-8") as file:
            text = file.readline()
    user, _, password = text.strip().partition(",")
    if not user and (password or origin.startswith("the file")):
        raise ValueError(
            f"{origin} must hold user,password. Received: no user (the rest is hidden)."
        )
    return user.strip(), password
