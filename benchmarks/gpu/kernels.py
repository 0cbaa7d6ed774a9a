"""Finds the operations of a graph that a GPU cannot run, or that make it wait.

TensorFlow's kernel registry says for each operation and type if there is a GPU kernel,
and which of its arguments the kernel keeps in the host's memory. A value that the GPU
computed and a kernel wants in the host's memory must be copied, and the copy waits for
all work that was started before. pip's TensorFlow registers the GPU kernels on machines
without GPUs, too, so no GPU is needed to know all this.
"""

import collections
import dataclasses
import functools

import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

# Values of these types are in the host's memory wherever they come from, and as
# arguments and results of functions those of type int32 are, too.
ON_HOST = (tf.string.as_datatype_enum, tf.resource.as_datatype_enum)
INT32 = tf.int32.as_datatype_enum
NOT_RUN = ("Placeholder", "_Arg", "_Retval", "NoOp")
# Batches have a fixed size, so TensorFlow replaces these by constants before it runs
# a graph, and everything that depends on constants only.
SHAPES = ("Shape", "ShapeN", "Size", "Rank")


@dataclasses.dataclass(frozen=True)
class Fault:
    """One reason for which a graph would not stay on the GPU.

    Attributes:
        op: type of the operation, such as "Split".
        dtype: type of the values that it is about.
        argument: argument for which a value is copied to the host; "" if the operation
            has no GPU kernel for its types.
    """

    op: str
    dtype: str
    argument: str = ""


@dataclasses.dataclass(frozen=True)
class _Value:
    """An output of a node.

    Attributes:
        dtype: its type.
        on_gpu: whether it is in the GPU's memory.
        constant: whether it is known before the graph runs.
    """

    dtype: int
    on_gpu: bool
    constant: bool = False


def faults(concrete, host="CPU:0"):
    """Returns the faults of a function and of all functions that it calls.

    Functions that XLA compiles are left out, but not their arguments.

    Args:
        concrete: a traced `tf.function`.
        host: the device that stands for the host; every other one for a GPU.

    Returns:
        `{Fault: names of the nodes that have it}`.
    """
    library = concrete.graph.as_graph_def().library.function
    bodies = {body.signature.name: body for body in library}
    found = collections.defaultdict(list)
    waiting, seen = [concrete.function_def], set()
    while waiting:
        body = waiting.pop()
        if body.signature.name in seen:
            continue
        seen.add(body.signature.name)
        for node, values in _nodes(body, host):
            called = [bodies[name] for name in _functions(node)]
            waiting += [one for one in called if not one.attr["_XlaMustCompile"].b]
            for fault in _faults_of_node(node, values, called, host):
                found[fault].append(f"{body.signature.name}/{node.name}")
    return dict(found)


def _nodes(body, host):
    """Yields (node, [`_Value` of each input]) for the nodes that a function runs."""
    nodes = {node.name: node for node in body.node_def}
    outputs = {
        arg.name: {arg.name: [_Value(arg.type, not _host_type(arg.type))]}
        for arg in body.signature.input_arg
    }

    def outputs_of(name):
        if name not in outputs:
            node = nodes[name]
            constant = _is_constant(node, map(value, _data_inputs(node)))
            on_host = _on_host(node, host) or _kernel(node) is None
            memory = () if on_host else _host_arguments(node)
            outputs[name] = {}
            for arg, types in _arguments(node, "output_arg"):
                there = on_host or (arg in memory and not constant)
                outputs[name][arg] = [
                    _Value(t, not (there or _host_type(t, node, constant)), constant)
                    for t in types
                ]
        return outputs[name]

    def value(text):
        name, _, place = text.partition(":")
        if not place:
            return outputs[name][name][0]
        argument, index = place.split(":")
        return outputs_of(name)[argument][int(index)]

    wanted = [text.partition(":")[0] for text in body.ret.values()]
    wanted += body.control_ret.values()
    run = set()
    while wanted:
        name = wanted.pop()
        if name in nodes and name not in run:
            run.add(name)
            wanted += [t.lstrip("^").partition(":")[0] for t in nodes[name].input]
    for name, node in nodes.items():
        if name in run and node.op not in NOT_RUN:
            yield node, list(map(value, _data_inputs(node)))


def _faults_of_node(node, values, called, host):
    """Yields the faults of one node."""
    if _is_constant(node, values):
        return
    kernel, on_host = _kernel(node), _on_host(node, host)
    if kernel is None and not on_host:
        yield Fault(node.op, _types(node))
    memory = _host_arguments(node) if kernel is not None else ()
    rest = iter(values)
    for argument, types in _arguments(node, "input_arg"):
        for dtype in types:
            wanted = kernel is None or on_host or argument in memory
            wanted |= bool(called) and dtype == INT32
            if next(rest).on_gpu and wanted:
                yield Fault(node.op, tf.as_dtype(dtype).name, argument)


def _functions(node):
    """Returns the names of the functions that a node calls."""
    attributes = node.attr.values()
    own = [a.func.name for a in attributes if a.HasField("func")]
    listed = (a.list.func for a in attributes if a.HasField("list"))
    return [*own, *(function.name for one in listed for function in one)]


def _is_constant(node, values):
    """Returns whether TensorFlow computes a node before it runs the graph."""
    if node.op in ("Const", *SHAPES):
        return True
    values = list(values)
    known = bool(values) and all(value.constant for value in values)
    return known and not (_functions(node) or op_def_registry.get(node.op).is_stateful)


def _host_type(dtype, node=None, constant=False):
    """Returns whether a type is always in the host's memory: int32 of some nodes is."""
    if dtype == INT32:
        return node is None or constant or bool(_functions(node))
    return dtype in ON_HOST


def _data_inputs(node):
    return [text for text in node.input if text[0] != "^"]


def _on_host(node, host):
    return node.device.endswith(host)


def _arguments(node, kind):
    """Yields (name, [types]) of a node's inputs or outputs, in order."""
    for arg in getattr(op_def_registry.get(node.op), kind):
        if arg.type_list_attr:
            yield arg.name, list(node.attr[arg.type_list_attr].list.type)
            continue
        count = node.attr[arg.number_attr].i if arg.number_attr else 1
        dtype = arg.type or node.attr[arg.type_attr].type
        yield arg.name, [dtype] * count


def _types(node):
    """Returns the types of a node's inputs as text."""
    types = {t for _, some in _arguments(node, "input_arg") for t in some}
    return ",".join(sorted(tf.as_dtype(t).name for t in types - set(ON_HOST)))


def _host_arguments(node):
    return set(_kernel(node).host_memory_arg)


def _kernel(node):
    """Returns the kernel that a GPU uses for a node, or None."""
    fitting = [kernel for kernel in _kernels(node.op) if _fits(kernel, node)]
    # The kernels of any device come after the GPU's own.
    order = [(k.device_type == "GPU", k.priority) for k in fitting]
    return fitting[order.index(max(order))] if fitting else None


@functools.cache
def _kernels(op):
    every = kernels.get_registered_kernels_for_op(op).kernel
    return [k for k in every if k.device_type in ("GPU", "DEFAULT") and not k.label]


def _fits(kernel, node):
    for constraint in kernel.constraint:
        value = node.attr[constraint.name]
        found = set(value.list.type) if value.HasField("list") else {value.type}
        if not found <= set(constraint.allowed_values.list.type):
            return False
    return True
