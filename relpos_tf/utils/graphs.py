"""Graphs of Python functions, without AutoGraph."""

import functools

import tensorflow as tf

# Is `tf.function`. AutoGraph would rewrite every Python function that is called
# while a graph is built, in search of loops and conditions over tensors. There
# are none: this package writes `tf.while_loop` and `tf.cond`. Without it the
# first call of a model's search takes .6 of the time.
function = functools.partial(tf.function, autograph=False)
