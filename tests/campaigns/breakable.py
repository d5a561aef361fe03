"""Models for tests of replicas: a quick one, and one with NaN on demand."""

import keras
import numpy as np
import tensorflow as tf

from relpos_tf.layers import dropout
from relpos_tf.layers import embeddings

# A batch with one of these ids has NaN or infinity. Other ids are smaller.
BREAKS = {"nan": 19, "inf": 20, "gradient nan": 21, "loss alone": 22}


class BagOfWords(keras.layers.Layer):
    """Predicts a token from the sums of source and past target vectors."""

    def __init__(self, hparams):
        super().__init__(name="bag")
        self.hparams = hparams
        self.source, self.target = (
            embeddings.TokenEmbedding(
                hparams.vocab_size, hparams.hidden_size, name=name
            )
            for name in ("source", "target")
        )
        self.dropout = dropout.Dropout(hparams.layer_prepostprocess_dropout)
        self.cut = dropout.SymbolDropout(hparams.symbol_dropout)
        for embedding in (self.source, self.target):
            embedding.build(None)
        self.built = True

    def features(self, inputs, targets, training, kept=(None, None)):
        source, past = (
            self.cut(table(ids), training=training, kept=number)
            for table, ids, number in zip(
                (self.source, self.target), (inputs, targets), kept, strict=True
            )
        )
        source = tf.reduce_sum(source, 1, keepdims=True)
        past = tf.cumsum(past, 1, exclusive=True)
        return self.dropout(tf.tanh(source + past), training=training)

    def softmax_table(self):
        return self.target.table()


class Fragile:
    """A model with NaN or infinite features for ids of BREAKS."""

    def __init__(self, model):
        self._model = model
        self.hparams = model.hparams
        self.trainable_variables = model.trainable_variables

    def features(self, inputs, targets, **options):
        x = self._model.features(inputs, targets, **options)
        return _break(x, inputs)

    def softmax_table(self):
        return self._model.softmax_table()


def _break(x, inputs):
    nan, inf, gradient, loss = (
        tf.reduce_any(tf.equal(inputs, i)) for i in BREAKS.values()
    )
    x *= tf.where(nan, np.nan, 1.0) * tf.where(inf, np.inf, 1.0)

    @tf.custom_gradient
    def break_one(x):
        def backward(upstream):
            upstream *= tf.where(gradient, np.nan, 1.0)
            return tf.where(loss, tf.zeros_like(upstream), upstream)

        return x * tf.where(loss, np.nan, 1.0), backward

    return break_one(x)
