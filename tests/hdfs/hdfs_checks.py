"""What the driver is asked to do: users' calls, their results as JSON."""

import hashlib
import os
import pathlib
import signal
import time
import types

from plsc_tf.storage import files, fs_options, transfer

BLOCK = bytes(range(256)) * 4096
# Quick: the tests know whether a server is there.
QUICK = files.Retry(tries=2, first_wait_s=0.1, limit_s=30)
_signals = []


def handle_sigterm():
    signal.signal(signal.SIGTERM, lambda number, frame: _signals.append(number))


def signals_seen():
    return _signals


def prepare(path):
    files.prepare(path)
    return [os.environ["LIBHDFS_OPTS"], os.environ["CLASSPATH"]]


def write(path, content):
    return files.write(path, content.encode(), checksum=True)


def round_trip(folder):
    """Every operation once; returns what each said."""
    said = {"before": files.exists(folder)}
    files.make_dirs(files.join(folder, "new/deep"))
    large, small = files.join(folder, "new/large"), files.join(folder, "new/small")
    content = BLOCK * 17 + b"end"
    said["large"] = files.write(large, content, checksum=True)
    said["large_expected"] = [len(content), hashlib.sha256(content).hexdigest()]
    said["small"] = files.write(small, [b"one ", b"", b"two"], checksum=True)
    files.write(files.join(folder, "new/empty"), b"")
    said["read"] = files.read(large) == content
    said["part"] = files.read(large, 8 << 20, (8 << 20) + 2) == content[:2]
    said["checksum"] = files.checksum(large)
    said["sizes"] = [files.size(small), files.size(files.join(folder, "new/empty"))]
    said["list"] = files.list_dir(files.join(folder, "new"))
    said["is_dir"] = [files.is_dir(files.join(folder, "new")), files.is_dir(small)]
    files.write(small, b"other")
    files.rename(files.join(folder, "new"), files.join(folder, "final"))
    files.remove(files.join(folder, "final/empty"))
    files.remove_tree(files.join(folder, "final/deep"))
    said["after"] = files.list_dir(files.join(folder, "final"))
    said["root"] = files.is_dir(files.parent(folder))
    return said


def refusals(folder):
    """Calls that must fail; returns the class and message of each error."""
    files.make_dirs(files.join(folder, "a"))
    files.write(files.join(folder, "file"), b"x")
    here = files.join(folder, "file")
    root = folder[: folder.rindex("/")]
    calls = {
        "read_absent": lambda: files.read(files.join(folder, "none")),
        "list_absent": lambda: files.list_dir(files.join(folder, "none")),
        "list_file": lambda: files.list_dir(here),
        "remove_absent": lambda: files.remove(files.join(folder, "none")),
        "remove_folder": lambda: files.remove(files.join(folder, "a")),
        "rename_absent": lambda: files.rename(files.join(folder, "none"), here + "2"),
        "rename_over": lambda: files.rename(files.join(folder, "a"), here),
        "rename_into_absent": lambda: files.rename(here, files.join(folder, "n/file")),
        "colon": lambda: files.write(files.join(folder, "12:30"), b"x"),
        "bare_root": lambda: files.make_dirs(root),
    }
    return {name: _error(call) for name, call in calls.items()}


def _error(call):
    try:
        call()
    except (OSError, ValueError) as error:
        return [type(error).__name__, str(error)]
    return None


def exists(path, limit_s):
    return files.exists(path, files.Retry(1, 0.1, limit_s))


def exists_patiently(path):
    return files.exists(path, files.Retry(8, 0.5, 30))


def list_dir(path):
    return files.list_dir(path, QUICK)


def write_slowly(path, begun, go_on):
    """Writes a file; in the middle it makes `begun` and waits for `go_on`."""

    def pieces():
        yield BLOCK * 8
        pathlib.Path(begun).touch()
        while not os.path.exists(go_on):
            time.sleep(0.05)
        for _ in range(64):
            yield BLOCK * 8

    return files.write(path, pieces(), checksum=True, retry=QUICK)


def upload(source, target):
    done = transfer.upload(source, target, retry=QUICK)
    return [done.copied, done.skipped, done.num_bytes]


def download(source, target):
    done = transfer.download(source, target, retry=QUICK)
    return [done.copied, done.skipped, done.num_bytes]


def plsc_run(options):
    """A PLSC user's run: what train does before and after."""
    storage = types.SimpleNamespace(**options)
    before = fs_options.download_start(storage)
    after = fs_options.upload_end(storage)
    return [before and before.copied, after and after.copied]
