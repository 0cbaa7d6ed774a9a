"""The workers that flags describe: cluster_node_ips, and which of them is this machine.

The names are those of Paddle's launcher; task_index is FastNN's.
"""

from plsc_tf.parallel import addresses

# Paddle's first port (its launcher's started_port).
DEFAULT_PORT = 6170
# The index of a pod in an indexed job of Kubernetes.
POD_INDEX = "JOB_COMPLETION_INDEX"


def worker_addresses(options):
    """Returns "host:port" of all workers, machine by machine.

    Args:
        options: the option group `cluster`.

    Raises:
        ValueError: an entry is malformed, or two workers have the same address.
    """
    found = []
    for host, port in _machines(options):
        first = port or first_port(options)
        found += [addresses.join(host, first + i) for i in range(options.num_workers)]
    return addresses.check(found, "cluster_node_ips")


def first_port(options):
    """Returns the port of a machine's first worker, where its entry has none."""
    return options.node_port or DEFAULT_PORT


def own_index(options, environ):
    """Returns which of cluster_node_ips this machine is.

    task_index or node_ip say it, else the index of a Kubernetes pod, else the address
    that can be listened on here.

    Raises:
        ValueError: none or several are, or task_index and node_ip differ.
    """
    named = named_index(options)
    if named is not None:
        return named
    machines = _machines(options)
    if POD_INDEX not in environ:
        return _local_index(machines)
    text = environ[POD_INDEX]
    if not text.isdecimal() or int(text) >= len(machines):
        raise ValueError(
            f"{POD_INDEX}={text!r} in the environment is this pod's index, but "
            f"cluster_node_ips has {len(machines)} entries. List one for each pod."
        )
    return int(text)


def named_index(options):
    """Returns which of cluster_node_ips task_index or node_ip name, None: neither is.

    Raises:
        ValueError: they name different ones, or one that is not there.
    """
    machines = _machines(options)
    by_ip = _find(options.node_ip, machines) if options.node_ip else None
    if options.task_index is None:
        return by_ip
    if options.task_index >= len(machines):
        raise ValueError(
            f"task_index={options.task_index}, but cluster_node_ips has "
            f"{len(machines)} entries, counted from 0."
        )
    if by_ip not in (None, options.task_index):
        raise ValueError(
            f"node_ip={options.node_ip} is entry {by_ip} of cluster_node_ips, but "
            f"task_index={options.task_index}. Give one of them."
        )
    return options.task_index


def _machines(options):
    """Returns (host, port or None) of each machine."""
    try:
        return [addresses.split(text) for text in options.cluster_node_ips]
    except ValueError as error:
        raise ValueError(f"cluster_node_ips: {error}") from None


def _find(node_ip, machines):
    """Returns the index of the machine that `node_ip` names."""
    try:
        host, port = addresses.split(node_ip)
    except ValueError as error:
        raise ValueError(f"node_ip: {error}") from None
    found = [
        i
        for i, machine in enumerate(machines)
        if machine[0] == host and port in (None, machine[1])
    ]
    if len(found) != 1:
        times = f"{len(found)} times" if found else "not"
        raise ValueError(
            f"node_ip={node_ip} is {times} in cluster_node_ips={_text(machines)}. "
            "Write it as it is there, with its port if the host is there twice."
        )
    return found[0]


def _local_index(machines):
    """Returns the index of the machine with an address of this one."""
    found, unknown = [], []
    for i, (host, _) in enumerate(machines):
        try:
            if addresses.is_local(host):
                found.append(i)
        except (OSError, UnicodeError) as error:
            unknown.append(f"{host} ({getattr(error, 'strerror', None) or error})")
    if len(found) == 1:
        return found[0]
    what = "more than one is" if found else "none is"
    hint = f" Names not known here: {', '.join(unknown)}." if unknown else ""
    raise ValueError(
        f"which of cluster_node_ips={_text(machines)} is this machine? By its "
        f"addresses, {what}.{hint} Set node_ip, or task_index, on each machine."
    )


def _text(machines):
    return ",".join(addresses.join(h, p) if p else h for h, p in machines)
