"""Wraps all private APIs of TensorFlow and Keras that this package uses.

Check this module first for a new version of TensorFlow or Keras. It was tested with
TensorFlow 2.17.1 to 2.21.0 and Keras 3.12.1 to 3.15.1, without GPUs; docs/versions.md
lists what ran.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.applications import nasnet, resnet
from keras.src.backend.common import global_state, stateless_scope
from keras.src.models.functional import Functional
from keras.src.saving import saving_lib
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.client import device_lib
from tensorflow.python.distribute import multi_worker_util
from tensorflow.python.distribute.cross_device_ops import CollectiveAllReduce
from tensorflow.python.eager import context as eager_context, record
from tensorflow.python.ops import collective_ops, control_flow_util

# TensorFlow


def collective_launcher() -> Any:
    """Returns what launches the calling replica's collectives in a `tf.function`.

    `ReplicaContext.all_gather` first gathers the shapes in a separate collective, even
    if all shapes are known to be equal, and TensorFlow has no public all-to-all.

    Returns:
        the launcher, for the next functions; None if the strategy has no collectives.
    """
    context = tf.distribute.get_replica_context()
    operations = context.strategy.extended._cross_device_ops
    if not isinstance(operations, CollectiveAllReduce):
        return None
    return operations._launchers[context._replica_id]


def launch_all_gather(launcher: Any, value: tf.Tensor) -> tf.Tensor:
    """Gathers tensors of equal shape `[b, ...]`; returns `[replicas * b, ...]`."""
    return launcher._all_gather(value, None)


def launch_all_to_all(launcher: Any, parts: tf.Tensor) -> tf.Tensor:
    """Sends row r of `[replicas, ...]` to replica r; returns the rows received."""
    with tf.device(launcher._device):
        return collective_ops.all_to_all_v2(
            parts,
            launcher._group_size,
            launcher._group_key,
            launcher._next_instance_key(),
            communication_hint=launcher._options.implementation.value,
            ordering_token=launcher._get_ordering_token(),
        )


def is_watched(tensor: tf.Tensor) -> bool:
    """Returns whether a gradient tape watches a tensor."""
    return record.should_record_backprop([tensor])


def is_traced_for_xla() -> bool:
    """Returns whether a `tf.function` that XLA compiles is being traced."""
    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph)


def uses_nccl(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether several replicas of a strategy communicate through NCCL."""
    if strategy.num_replicas_in_sync == 1:
        return False
    options = getattr(strategy.extended._cross_device_ops, "_options", None)
    return options is not None and options.implementation.value == "NCCL"


def configure_coordination(addresses: list[str], heartbeat_ms: int) -> None:
    """Configures the heartbeat timeout of TensorFlow's coordination service.

    By default, `MultiWorkerMirroredStrategy` uses a heartbeat timeout of 10 seconds.
    """
    leader = tf.train.ClusterSpec({"worker": addresses})
    # The module that declares the message `CoordinatedJob` moved in TensorFlow 2.19.
    coordination = tf.compat.v1.ConfigProto().experimental.coordination_config
    job = coordination.coordinated_job_list.add(name="worker", num_tasks=len(addresses))
    eager_context.context().configure_coordination_service(
        service_type="standalone",
        service_leader=multi_worker_util.coordination_leader(leader),
        coordinated_jobs=[job],
        heartbeat_timeout_in_ms=heartbeat_ms,
    )


def gpu_memory_limits() -> list[int]:
    """Returns TensorFlow's memory limit for each GPU in bytes; initializes all GPUs."""
    devices = device_lib.list_local_devices()
    return [d.memory_limit for d in devices if d.device_type == "GPU"]


def barrier(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Makes XLA compute all of the tensors before anything that reads one of them."""
    return gen_xla_ops.xla_optimization_barrier(tensors)


# Keras's layers and weights files


def calls(network: keras.Model) -> list[tuple[list, list]]:
    """Returns (inputs, outputs) of the calls in a functional model, in order."""
    graph = keras.Model(network.inputs, network.outputs)._nodes_by_depth
    nodes = (node for depth in sorted(graph, reverse=True) for node in graph[depth])
    return [(node.input_tensors, node.outputs) for node in nodes if not node.is_input]


def resnet200(version: int, image):
    """Builds a ResNet v1 or v2 of 200 layers; `keras.applications` has up to 152.

    Source of the numbers of blocks: He et al. 2016, arXiv:1603.05027, section 5.

    Args:
        version: 1, or 2 for normalization before each convolution.
        image: symbolic images.

    Returns:
        `[N, features]` tensor.
    """
    stack = getattr(resnet, f"stack_residual_blocks_v{version}")
    depths, strides = (3, 24, 36, 3), (1, 2, 2, 2) if version == 1 else (2, 2, 2, 1)

    def stacks(x):
        for i, (depth, stride) in enumerate(zip(depths, strides, strict=True)):
            x = stack(x, 64 * 2**i, depth, stride, f"conv{i + 2}")
        return x

    options = {"include_top": False, "weights": None, "pooling": "avg"}
    network = resnet.ResNet(stacks, version == 2, True, input_tensor=image, **options)
    return network.output


def nasnet_cifar(image):
    """Builds NASNet-A (6 @ 768); `keras.applications` has only those of large images.

    Source: Zoph et al. 2017, arXiv:1707.07012, figure 2, left.

    Args:
        image: symbolic images.

    Returns:
        `[N, features]` tensor.
    """
    options = {"padding": "same", "use_bias": False, "kernel_initializer": "he_normal"}
    x = keras.layers.Conv2D(96, 3, name="stem_conv1", **options)(image)
    x = before = keras.layers.BatchNormalization(epsilon=1e-3, name="stem_bn1")(x)
    for stage, filters in enumerate((32, 64, 128)):
        if stage:
            x, before = nasnet._reduction_a_cell(x, before, filters, f"reduce_{stage}")
        for cell in range(6 * stage, 6 * stage + 6):
            x, before = nasnet._normal_a_cell(x, before, filters, str(cell))
    return keras.layers.GlobalAveragePooling2D()(keras.layers.ReLU()(x))


def nasnet_separable(x, filters: int, size: int, stride: int, name: str):
    """Applies two separable convolutions with ReLU before and normalization after."""
    sizes = (size, size), (stride, stride)
    return nasnet._separable_conv_block(x, filters, *sizes, name)


def nasnet_adjusted(before, last, filters: int, name: str):
    """Gives the second-to-last state of a network of cells the size of the last one.

    Args:
        before: `[N, h, w, c]` tensor, or None to return `last`.
        last: `[N, h, w, c]` tensor with the same or half the height and width.
        filters: number of channels of the result, unless it is `last`.
        name: part of the layers' names.
    """
    return nasnet._adjust_block(before, last, filters, name)


def layers_inside(
    layer: keras.Layer, include_self: bool = False
) -> Iterator[keras.Layer]:
    """Yields all layers, including nested ones, which `Model.layers` doesn't list."""
    return layer._flatten_layers(include_self=include_self)


class Substituted(Functional):
    """A functional model with the layers of another one, some computed differently.

    Args:
        inputs, outputs: symbolic tensors, as for `keras.Model`.
        substitute: function that takes a layer and returns a function to call in its
            place, or None. Functional models within the model are treated likewise.
    """

    def __init__(self, inputs, outputs, substitute: Callable) -> None:
        super().__init__(inputs, outputs)
        self._own: dict = {}
        for layer in self.layers:
            own = substitute(layer)
            if type(layer) in (Functional, keras.Sequential):
                inner = Substituted(layer.inputs, layer.outputs, substitute)
                own = functools.partial(inner, training=True)
            if own is not None:
                self._own[id(layer)] = own

    def _run_through_graph(self, inputs, operation_fn=lambda op: op, call_fn=None):
        def chosen(operation):
            keras_call = operation_fn(operation)
            own = None if call_fn else self._own.get(id(operation))
            if own is None:
                return keras_call

            def call(x, *, training=None, mask=None):
                del training  # Keras replaces it as well
                return own(x) if mask is None else keras_call(x, mask=mask)

            return call

        return super()._run_through_graph(inputs, chosen, call_fn)


@contextlib.contextmanager
def delayed_weights() -> Iterator[list]:
    """Creates the weights of layers that are built inside only when it ends.

    Yields the list of weights to create. After an error, they are not created.
    """
    name, created = "uninitialized_variables", []
    # Code that failed before may have left some of its own.
    before = global_state.get_global_attribute(name, [])
    global_state.set_global_attribute(name, created)
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield created
        with keras.StatelessScope():
            pass  # creates them at its end
    finally:
        global_state.set_global_attribute(name, before)


def save_weights(network: keras.Model, file) -> None:
    """Writes a weights file like `network.save_weights`, but to an open file."""
    with contextlib.closing(saving_lib.H5IOStore(file, mode="w")) as store:
        saving_lib._save_state(network, store, None, "", set())


def load_weights(network: keras.Model, file) -> None:
    """Reads a weights file like `network.load_weights`, but from an open file."""
    with contextlib.closing(saving_lib.H5IOStore(file, mode="r")) as store:
        saving_lib._load_state(network, store, None, "", visited_saveables=set())


# Keras's optimizers


def learning_rate_or_schedule(optimizer: keras.Optimizer):
    """Returns the learning rate's variable or schedule.

    If there is a schedule, `optimizer.learning_rate` is only its current value.
    """
    return optimizer._learning_rate


def belongs_to(optimizer: keras.Optimizer, strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the optimizer was created in a strategy's scope."""
    return optimizer._distribution_strategy is strategy


def uses_weight_decay(optimizer: keras.Optimizer, variable) -> bool:
    """Returns False for a variable excluded with `exclude_from_weight_decay`."""
    return optimizer._use_weight_decay(variable)


def copy_exclusions(source: keras.Optimizer, target: keras.Optimizer) -> None:
    """Copies the exclusions from weight decay, which `get_config` doesn't contain."""
    name = "_exclude_from_weight_decay_pattern"
    setattr(target, name, getattr(source, name, None))


def has_own_update(optimizer: keras.Optimizer) -> bool:
    """Returns whether an update does more than `update_step` for each variable."""
    ordinary = keras.optimizers.Optimizer
    return type(optimizer)._backend_update_step is not ordinary._backend_update_step


def on_tensors(optimizer: keras.Optimizer) -> keras.Optimizer:
    """Returns a copy of a built optimizer that updates values in a `StatelessScope`.

    It shares the optimizer's variables. The copy's own attributes, such as its weight
    decay, can be changed without effect on the optimizer.
    """
    kind, variables = type(optimizer), optimizer._trainable_variables
    # Copying with `copy` would save and load the optimizer.
    twin = object.__new__(type(f"{kind.__name__}OnTensors", (OnTensors, kind), {}))
    # In a `StatelessScope`, the keys under which it knows its variables do not exist.
    indices = {id(v): i for i, v in enumerate(variables)}
    decays = {id(v): optimizer._use_weight_decay(v) for v in variables}
    vars(twin).update(vars(optimizer), _trainable_variables_indices=indices)
    vars(twin)["_exclude_from_weight_decay_cache"] = decays
    return twin


class OnTensors:
    """Mixin that makes a Keras optimizer update only values in a `StatelessScope`.

    By default, Keras's TensorFlow backend assigns to the underlying `tf.Variable`s.
    Derive from this class and an optimizer's class, in this order.
    """

    def assign(self, variable, value):
        """Sets the variable's value in the scope."""
        scope = stateless_scope.get_stateless_scope()
        scope.add_update((variable, tf.cast(value, variable.dtype)))

    def assign_add(self, variable, value):
        """Adds to the variable's value in the scope."""
        self.assign(variable, variable.value + tf.cast(value, variable.dtype))

    def assign_sub(self, variable, value):
        """Subtracts from the variable's value in the scope."""
        self.assign(variable, variable.value - tf.cast(value, variable.dtype))

    def _var_key(self, variable):
        return id(variable)
