"""A real HDFS on this machine: one NameNode and one DataNode, each a Java process."""

import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request

import hdfs_packages

from plsc_tf.parallel.addresses import free_addresses

JAVA_OPTIONS = (
    "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true"
).split()
SERVERS = {"namenode": "namenode.NameNode", "datanode": "datanode.DataNode"}
LOG4J = """log4j.rootLogger={level},c
log4j.appender.c=org.apache.log4j.ConsoleAppender
log4j.appender.c.target=System.err
log4j.appender.c.layout=org.apache.log4j.PatternLayout
log4j.appender.c.layout.ConversionPattern=%p %c{{2}}: %m%n
"""


class Hdfs:
    """The servers, what a client needs to reach them, and means to break them.

    Attributes:
        uri: `hdfs://127.0.0.1:port`.
        packages: the `hdfs_packages.Packages`.

    Args:
        folder: where the servers keep everything.
        packages: see above.
        values: further properties of servers and clients.
        java_options: further options of the servers' Java.
    """

    def __init__(self, folder, packages, values=None, java_options=()):
        self.packages, self._values = packages, values or {}
        self._java_options = [*JAVA_OPTIONS, *java_options]
        self._folder = pathlib.Path(folder)
        self._processes = {}
        self._begun_at = {}
        address, self._web = free_addresses(2)
        self.uri = f"hdfs://{address}"
        self._configure()

    def start_all(self):
        """Makes an empty file system and starts it; up when this returns."""
        command = [*self._java("namenode"), "-format", "-force", "-nonInteractive"]
        with open(self._folder / "format.log", "w") as log:
            subprocess.run(command, stdout=log, stderr=log, check=True)
        self.start("namenode")
        self.start("datanode")
        self.wait()

    def start(self, server):
        """Starts the "namenode" or the "datanode"."""
        with open(self._folder / f"{server}.log", "a") as log:
            self._begun_at[server] = log.tell()
            self._processes[server] = subprocess.Popen(
                self._java(server),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, server):
        """Ends a server at once, as a power cut does."""
        process = self._processes.pop(server)
        process.kill()
        process.wait()

    def freeze(self, server):
        """Stops a server: its connections are accepted, and nothing is answered."""
        process = self._processes[server]
        process.send_signal(signal.SIGSTOP)
        tasks = pathlib.Path(f"/proc/{process.pid}/task")
        # Each of its threads stops when it gets to it.
        while any(_state(task) != "T" for task in tasks.iterdir()):
            time.sleep(0.01)

    def thaw(self, server):
        """Lets a frozen server go on."""
        self._processes[server].send_signal(signal.SIGCONT)

    def heal(self):
        """Brings back what was killed or frozen."""
        for server in SERVERS:
            if server not in self._processes:
                self.start(server)
            self.thaw(server)
        self.wait()

    def stop_all(self):
        """Ends the servers."""
        for server in list(self._processes):
            self.thaw(server)
            self.kill(server)

    def wait(self, limit_s=60):
        """Waits until the NameNode answers and the DataNode has reported to it."""
        query = "jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        address = f"http://{self._web}/{query}"
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(address, timeout=2) as answer:
                    state = json.load(answer)["beans"][0]
                # A NameNode that has just started has not met its DataNode yet.
                known = state["NumLiveDataNodes"] >= 1
                ready = known and state["FSState"] == "Operational"
                if ready and self._datanode_has_reported():
                    return
            except (OSError, ValueError, LookupError):
                pass
            time.sleep(0.1)
        raise TimeoutError(f"HDFS did not come up; see the logs in {self._folder}")

    def _datanode_has_reported(self):
        """Whether this DataNode did; the NameNode may still count a dead one."""
        with open(self._folder / "datanode.log") as log:
            log.seek(self._begun_at["datanode"])
            return "Successfully sent block report" in log.read()

    def environment(self):
        """The environment of a process that reaches this HDFS as users' do."""
        packages, names = self.packages, os.environ
        return {
            **{name: names[name] for name in names if "HADOOP" not in name},
            "JAVA_HOME": str(packages.java_home),
            "HADOOP_HDFS_HOME": str(packages.hadoop_home),
            # A wildcard, which Java does not expand for a library.
            "CLASSPATH": f"{self._folder / 'client'}:{packages.client_jars}/*",
            "LIBHDFS_OPTS": "-Xmx128m",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }

    def _java(self, server):
        """The command of a server, without its arguments."""
        packages = self.packages
        jars = [f"{packages.client_jars}/*", f"{packages.server_jars}/*"]
        jars = [str(self._folder / "server"), str(self._folder / "web"), *jars]
        java = str(packages.java_home / "bin/java")
        program = f"org.apache.hadoop.hdfs.server.{SERVERS[server]}"
        return [java, *self._java_options, "-cp", ":".join(jars), program]

    def _configure(self):
        core = {"fs.defaultFS": self.uri, "hadoop.tmp.dir": f"{self._folder}/tmp"}
        core |= self._values
        # A refused connection need not be tried for ten seconds.
        client = {**core, "ipc.client.connect.max.retries": 1}
        hdfs = {
            "dfs.replication": 1,
            "dfs.webhdfs.enabled": "false",
            "dfs.namenode.name.dir": f"file://{self._folder}/names",
            "dfs.datanode.data.dir": f"file://{self._folder}/data",
            "dfs.namenode.http-address": self._web,
            "dfs.datanode.address": "127.0.0.1:0",
            "dfs.datanode.http.address": "127.0.0.1:0",
            "dfs.datanode.ipc.address": "127.0.0.1:0",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.safemode.extension": 0,
            "dfs.heartbeat.interval": 1,
            **self._values,
        }
        for name, level in (("server", "INFO"), ("client", "ERROR")):
            folder = self._folder / name
            folder.mkdir(parents=True)
            values = client if name == "client" else core
            (folder / "core-site.xml").write_text(_xml(values))
            (folder / "hdfs-site.xml").write_text(_xml(hdfs))
            (folder / "log4j.properties").write_text(LOG4J.format(level=level))
        for name in ("hdfs", "datanode", "static"):
            (self._folder / "web/webapps" / name).mkdir(parents=True)


def start(folder):
    """Starts an HDFS below `folder`."""
    cluster = Hdfs(folder, hdfs_packages.prepare())
    try:
        cluster.start_all()
    except BaseException:
        cluster.stop_all()
        raise
    return cluster


def _state(task):
    """The letter of a thread's state in /proc, behind its name in brackets."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def _xml(values):
    rows = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in values.items()
    )
    return f"<?xml version='1.0'?><configuration>{rows}</configuration>\n"
