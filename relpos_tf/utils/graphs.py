"""Graphs of Python functions, without AutoGraph."""

import functools

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

# Is `tf.function`. AutoGraph would rewrite every Python function that is called
# while a graph is built, in search of loops and conditions over tensors. There
# are none: this package writes `tf.while_loop` and `tf.cond`. Without it the
# first call of a model's search takes .6 of the time.
function = functools.partial(tf.function, autograph=False)


def are_for_xla() -> bool:
    """Returns whether what is traced now will be compiled by XLA."""
    # Without a public name.
    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph)


def have_gpu() -> bool:
    """Returns whether TensorFlow computes on a GPU here."""
    return bool(tf.config.list_logical_devices("GPU"))
