"""HDFS with Kerberos: a KDC of this machine (Debian: krb5-kdc krb5-admin-server)."""

import pathlib
import re
import subprocess

import hdfs_cluster
import hdfs_driver
import pytest
from hdfs_driver import RemoteCallError

from plsc_tf.parallel.addresses import free_addresses, split
from tests.waiting import wait_for

# Hadoop before 3.3 looks into a package that Java 17 does not export.
EXPORTS = "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED"


@pytest.fixture
def environment(hdfs_servers, tmp_path):
    """The environment of a user with a ticket."""
    if not pathlib.Path("/usr/sbin/krb5kdc").exists():
        pytest.skip("Kerberos: no KDC: apt-get install krb5-kdc krb5-admin-server")
    script = pathlib.Path(__file__).with_name("kdc.sh")
    _, port = split(*free_addresses(1))
    kdc = subprocess.Popen(["sh", script, tmp_path, str(port)])
    ticket = tmp_path / "ticket"
    wait_for(lambda: ticket.exists() or kdc.poll() is not None)
    assert ticket.exists()
    java = [f"-Djava.security.krb5.conf={tmp_path}/krb5.conf", EXPORTS]
    values = {
        "hadoop.security.authentication": "kerberos",
        "hadoop.security.authorization": "true",
        "dfs.block.access.token.enable": "true",
        "dfs.data.transfer.protection": "authentication",
        "ignore.secure.ports.for.testing": "true",
        "dfs.permissions.enabled": "false",
    }
    for server in hdfs_cluster.SERVERS:
        values[f"dfs.{server}.kerberos.principal"] = "hdfs/localhost@TEST"
        values[f"dfs.{server}.keytab.file"] = tmp_path / "keytab"
    packages = hdfs_servers.packages
    cluster = hdfs_cluster.Hdfs(tmp_path / "hdfs", packages, values, java)
    try:
        cluster.start_all()
        found = cluster.environment()
        # Hadoop's client encodes the name of a user with a ticket with commons-codec.
        found["CLASSPATH"] += f":{packages.server_jars}/*"
        found |= {"LIBHDFS_OPTS": " ".join(java), "PLSC_TF_HDFS": cluster.uri}
        yield found | {"KERB_TICKET_CACHE_PATH": str(ticket)}
    finally:
        cluster.stop_all()
        kdc.kill()
        kdc.wait()


@pytest.mark.slow
def test_a_ticket_opens_the_store_and_none_is_an_error(environment, tmp_path):
    path = f"{environment['PLSC_TF_HDFS']}/run/a"
    driver = hdfs_driver.Driver(environment, tmp_path / "log.txt")
    assert driver.call("hdfs_checks:write", path, "text")["bytes"] == 4
    assert driver.call("hdfs_trainings:read", path) == "text"
    driver.stop()
    closed = re.sub("--add-exports=[^ ]*krb5[^ ]*", "", environment["LIBHDFS_OPTS"])
    no_file = re.sub("krb5.conf=[^ ]*", "krb5.conf=/none", environment["LIBHDFS_OPTS"])
    for name, value, message in (
        ("LIBHDFS_OPTS", closed, "set LIBHDFS_OPTS=--add-exports="),
        ("LIBHDFS_OPTS", no_file, "krb5.conf"),
        ("KERB_TICKET_CACHE_PATH", "/none", "Kerberos: call kinit"),
    ):
        driver = hdfs_driver.Driver({**environment, name: value}, tmp_path / "log.txt")
        with pytest.raises(RemoteCallError, match=f"StorageError: .*{message}"):
            driver.call("hdfs_checks:exists", path, 1, 0.1, 60)
        driver.stop()
