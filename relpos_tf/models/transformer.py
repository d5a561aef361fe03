"""The Transformer of an `HParams`.

Here, and nowhere below, hyper-parameters become arguments of layers.

Shapes: B batch, S source length, T target length, V vocabulary, F features,
H heads, D depth per head, n hypotheses of one source.
"""

from typing import NamedTuple

import keras
import tensorflow as tf

from relpos_tf import hparam
from relpos_tf.layers import attention
from relpos_tf.layers import blocks
from relpos_tf.layers import dropout
from relpos_tf.layers import embeddings


class DecoderCache(NamedTuple):
    """What decoding keeps between steps.

    Attributes:
        layers: per block, a cache of self-attention, `[B * n, H, T, D]`. Only
            this part follows the hypotheses of a beam search.
        memory: per block, the source's keys and values, `[B, H, S, D]`.
        may_attend: bool `[B, 1, 1, S]`, True where the source has a token.
        embedding: the table of the targets, `[V, F]`, read once.
        softmax: the table of the softmax, `[F, V]`, read and transposed once.
    """

    layers: tuple
    memory: tuple
    may_attend: tf.Tensor
    embedding: tf.Tensor
    softmax: tf.Tensor


@keras.saving.register_keras_serializable(package="relpos_tf")
class Transformer(keras.Model):
    """Encoder and decoder, with absolute or relative positions or both.

    The variables exist as soon as the model does.

    Args:
        hparams: `hparam.HParams`, or the dict of one.
        **kwargs: Passed to `keras.Model`.

    Call arguments:
        inputs: `[B, S]` integer tensor of source ids, padded with 0.
        targets: `[B, T]` integer tensor of target ids, padded with 0; not
            shifted: position t sees the targets before t.
        training: bool. Whether to drop.

    Returns:
        Logits, float32 `[B, T, V]`, of the target at each position.

    Example:

    >>> model = Transformer(
    ...     hparam.HParams().replace(vocab_size=11, hidden_size=16)
    ... )
    >>> tuple(model(tf.constant([[5, 1]]), tf.constant([[7, 3, 1]])).shape)
    (1, 3, 11)

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155);
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762).
    """

    def __init__(self, hparams, name="transformer", **kwargs):
        super().__init__(name=name, **kwargs)
        if not isinstance(hparams, hparam.HParams):
            hparams = hparam.HParams().replace(**hparams)
        self.hparams = hparams
        policy = {"dtype": self.dtype_policy}
        size = hparams.vocab_size, hparams.hidden_size
        self.target_embedding = embeddings.TokenEmbedding(
            *size, **policy, name="target_embedding"
        )
        self.source_embedding = self.softmax_embedding = self.target_embedding
        if not hparams.shared_embedding:
            self.source_embedding = embeddings.TokenEmbedding(
                *size, **policy, name="source_embedding"
            )
        if not hparams.shared_embedding_and_softmax_weights:
            self.softmax_embedding = embeddings.TokenEmbedding(
                *size, **policy, name="softmax"
            )
        self.target_space = None
        if hparams.use_target_space_embedding:
            self.target_space = embeddings.TargetSpaceEmbedding(
                hparams.target_space_id,
                hparam.TARGET_SPACES,
                hparams.hidden_size,
                **policy,
                name="target_space_embedding",
            )
        self.source_positions = self.target_positions = None
        if hparams.pos == "emb":
            self.source_positions, self.target_positions = (
                embeddings.LearnedPositions(
                    hparams.max_length, hparams.hidden_size, **policy, name=name
                )
                for name in ("source_positions", "target_positions")
            )
        self.embedding_dropout = dropout.Dropout(
            hparams.layer_prepostprocess_dropout,
            **policy,
            name="embedding_dropout",
        )
        self._add_stacks(policy)
        self.build(None)

    def _add_stacks(self, policy):
        arguments = block_arguments(self.hparams)
        # Tuples, because tf.train.Checkpoint loses layers held in lists.
        self.encoder_blocks = tuple(
            blocks.EncoderBlock(*arguments, **policy, name=f"encoder_layer_{i}")
            for i in range(self.hparams.encoder_layers)
        )
        self.decoder_blocks = tuple(
            blocks.DecoderBlock(*arguments, **policy, name=f"decoder_layer_{i}")
            for i in range(self.hparams.decoder_layers)
        )
        self.encoder_norm = self.decoder_norm = None
        if self.hparams.layer_preprocess_sequence == "n":
            # The last sum of a pre-norm stack has no norm after it.
            self.encoder_norm, self.decoder_norm = (
                keras.layers.LayerNormalization(
                    epsilon=self.hparams.norm_epsilon, **policy, name=name
                )
                for name in ("encoder_norm", "decoder_norm")
            )

    def build(self, input_shape):
        if self.built:
            return
        features = (None, None, self.hparams.hidden_size)
        for layer in self._flatten_layers(include_self=False, recursive=False):
            if not layer.built:
                layer.build(features)
        self.built = True

    def call(self, inputs, targets, training=False):
        memory = self.encode(inputs, training=training)
        return self.decode(targets, memory, inputs, training=training)

    def encode(self, inputs, training=False):
        """Encodes source ids `[B, S]`: returns `[B, S, F]`."""
        x = self.source_embedding(inputs)  # [B, S, F]
        if self.target_space is not None:
            x = self.target_space(x)
        x = self._add_positions(x, self.source_positions, 0)
        x = self.embedding_dropout(x, training=training)
        may_attend = is_token(inputs)  # [B, 1, 1, S]
        for block in self.encoder_blocks:
            x = block(x, may_attend=may_attend, training=training)
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def decode(self, targets, memory, inputs, training=False):
        """Scores all targets at once.

        Args:
            targets: `[B, T]` integer tensor, not shifted.
            memory: `[B, S, F]`: what `encode` returned for `inputs`.
            inputs: `[B, S]` integer tensor: tells padding from tokens.
            training: bool.

        Returns:
            Logits, float32 `[B, T, V]`.
        """
        shifted = tf.pad(targets, [[0, 0], [1, 0]])[:, :-1]  # [B, T]
        x = self.target_embedding(shifted)  # [B, T, F]
        x = self._add_positions(x, self.target_positions, 0)
        x = self.embedding_dropout(x, training=training)
        may_attend = is_token(inputs)
        for block in self.decoder_blocks:
            x = block(x, memory, may_attend=may_attend, training=training)
        return self._logits(x)

    def init_cache(self, inputs, memory=None, *, beam_size=1, max_length=None):
        """Returns the cache of a decoding that has not begun.

        Args:
            inputs: `[B, S]` integer tensor of source ids.
            memory: `[B, S, F]`: what `encode` returned, if it ran already.
            beam_size: int, n. Hypotheses for each source.
            max_length: None for a cache that grows with each step, or an int
                or scalar tensor: a cache with room for that many positions.

        Returns:
            A `DecoderCache`.
        """
        if memory is None:
            memory = self.encode(inputs)
        kind = attention.FixedCache
        if max_length is None:
            kind, max_length = attention.GrowingCache, 0
        heads = self.hparams.num_heads
        depth = self.hparams.hidden_size // heads
        rows = tf.shape(inputs)[0] * beam_size
        empty = tf.zeros([rows, heads, max_length, depth], self.compute_dtype)
        return DecoderCache(
            layers=tuple(kind(empty, empty) for _ in self.decoder_blocks),
            memory=tuple(
                block.encdec_attention.project(memory)
                for block in self.decoder_blocks
            ),
            may_attend=is_token(inputs),
            embedding=self.target_embedding.table(),
            softmax=tf.transpose(self.softmax_embedding.table()),
        )

    def step(self, ids, cache, start):
        """Scores the targets that follow `ids`, one or several at a time.

        Args:
            ids: `[B * n, T]` integer tensor: the targets before the positions
                `start` to `start + T - 1`. Position 0 follows id 0.
            cache: `DecoderCache` of the positions before `start`.
            start: int or scalar tensor.

        Returns:
            A pair: logits, float32 `[B * n, T, V]`, equal to the rows from
            `start` of `decode`; and the cache with these positions.
        """
        x, cache, _ = self._step(ids, cache, start)
        x = x if self.decoder_norm is None else self.decoder_norm(x)
        return self.softmax_embedding.logits_by(x, cache.softmax), cache

    def attention(self, inputs, targets):
        """Returns how much each target attends to each source id.

        Args:
            inputs: `[B, S]` integer tensor of source ids.
            targets: `[B, T]` integer tensor, not shifted.

        Returns:
            A `[B, L, H, T, S]` tensor, L being the decoder's layers; row t
            holds the weights with which target t was predicted.
        """
        shifted = tf.pad(targets, [[0, 0], [1, 0]])[:, :-1]  # [B, T]
        weights = self._step(shifted, self.init_cache(inputs), 0)[2]
        return tf.stack(weights, axis=1)

    def _step(self, ids, cache, start):
        x = self.target_embedding.look_up(ids, cache.embedding)  # [B * n, T, F]
        x = self._add_positions(x, self.target_positions, start)
        layers, weights = [], []
        for block, layer, memory in zip(
            self.decoder_blocks, cache.layers, cache.memory, strict=True
        ):
            x, layer, weight = block.step_and_weights(
                x, layer, memory, start=start, may_attend=cache.may_attend
            )
            layers.append(layer)
            weights.append(weight)
        return x, cache._replace(layers=tuple(layers)), weights

    def _add_positions(self, x, learned, start):
        positions = start + tf.range(tf.shape(x)[1])
        if learned is not None:
            return x + learned(positions)
        if self.hparams.pos == "timing":
            signal = embeddings.timing_signal(positions, x.shape[-1])
            return x + tf.cast(signal, x.dtype)
        return x

    def _logits(self, x):
        if self.decoder_norm is not None:
            x = self.decoder_norm(x)
        return self.softmax_embedding.logits(x)

    def get_config(self):
        return super().get_config() | {"hparams": self.hparams.to_dict()}


def is_token(ids):
    """Returns where `[B, S]` ids are not padding: bool `[B, 1, 1, S]`."""
    return tf.not_equal(ids, 0)[:, tf.newaxis, tf.newaxis, :]


def block_arguments(hparams: hparam.HParams) -> tuple[dict, dict, dict]:
    """Translates hparams into the arguments of a block."""
    attention_args = {
        "hidden_size": hparams.hidden_size,
        "num_heads": hparams.num_heads,
        "dropout": hparams.attention_dropout,
    }
    if hparams.is_relative:
        attention_args |= {
            "max_relative_position": hparams.max_relative_position,
            "add_relative_to_keys": hparams.add_relative_to_keys,
            "add_relative_to_values": hparams.add_relative_to_values,
            "heads_share_relative_embedding": (
                hparams.heads_share_relative_embedding
            ),
            "implementation": hparams.relative_attention_implementation,
        }
    feed_forward_args = {
        "filter_size": hparams.filter_size,
        "hidden_size": hparams.hidden_size,
        "relu_dropout": hparams.relu_dropout,
    }
    residual_args = {
        "norm_before": hparams.layer_preprocess_sequence == "n",
        "norm_after": hparams.layer_postprocess_sequence == "dan",
        "rate": hparams.layer_prepostprocess_dropout,
        "epsilon": hparams.norm_epsilon,
    }
    return attention_args, feed_forward_args, residual_args
