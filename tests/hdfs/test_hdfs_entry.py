"""PLSC's `set_hdfs_info`: its two scripts, against a real HDFS."""


def test_models_go_up_and_come_down(hdfs, driver, folder, tmp_path):
    directory = folder.removeprefix(hdfs.uri)
    up = tmp_path / "up"
    first = driver.call("hdfs_entry:run", "UPLOAD", hdfs.uri, directory, str(up))
    assert first["steps"] == 2
    down = tmp_path / "down"
    second = driver.call("hdfs_entry:run", "DOWNLOAD", hdfs.uri, directory, str(down))
    manifest = "saved_model/0/manifest.json"
    assert (down / manifest).read_bytes() == (up / manifest).read_bytes()
    # It starts from the weights of the first, and saves beside them.
    assert (second["steps"], second["loss"] < first["loss"]) == (2, True)
    assert (down / "output/0/manifest.json").is_file()
    assert "passwd" not in driver.log.read_text()
    for path in (*up.rglob("*"), *down.rglob("*")):
        assert path.is_dir() or b"passwd" not in path.read_bytes()
