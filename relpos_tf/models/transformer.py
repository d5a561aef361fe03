"""The Transformer of an `HParams`.

Hyper-parameters become arguments of layers here and in `arguments`, and no
layer below knows them.

Shapes: B batch, S source length, T target length, V vocabulary, F features,
H heads, D depth per head, n hypotheses of one source, L decoder layers.
"""

from collections.abc import Mapping
from typing import NamedTuple

import keras
import tensorflow as tf

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.layers import blocks
from relpos_tf.layers import caches
from relpos_tf.layers import checks
from relpos_tf.layers import dropout
from relpos_tf.layers import embeddings
from relpos_tf.layers import masks
from relpos_tf.layers import pairs
from relpos_tf.layers import projections
from relpos_tf.layers.positions import scheme
from relpos_tf.models import arguments


class DecoderCache(NamedTuple):
    """What decoding step by step keeps between steps.

    Attributes:
        layers: per block, the cache of self-attention, `[B * n, H, T, D]`.
            Only this part follows the hypotheses of a beam search.
        memory: per block, the source's keys and values, `[B, H, S, D]`.
        may_attend: bool `[B, 1, 1, S]`, True where the source has a token.
        embedding: the embedding table of the targets, `[V, F]`, read once.
        softmax: the softmax table, `[F, V]`, read and transposed once.
    """

    layers: tuple
    memory: tuple
    may_attend: tf.Tensor
    embedding: tf.Tensor
    softmax: tf.Tensor


class BeamCache(NamedTuple):
    """What a beam search keeps between steps; see `layers.pairs.of_hypotheses`.

    Attributes:
        layers: per block, the keys and values of self-attention. They stay
            with their source, whichever hypotheses survive.
        memory: per block, the keys and values of the source.
        source: `pairs.OnePosition`: which source positions have a token.
        kernels: per block, the `fused_kernel` of self-attention.
        embedding: as in `DecoderCache`.
        softmax: as in `DecoderCache`.
    """

    layers: tuple
    memory: tuple
    source: pairs.OnePosition
    kernels: tuple
    embedding: tf.Tensor
    softmax: tf.Tensor


def is_token(ids):
    """Returns where `[B, S]` ids are not padding: bool `[B, 1, 1, S]`."""
    return tf.not_equal(ids, 0)[:, tf.newaxis, tf.newaxis, :]


@keras.saving.register_keras_serializable(package="relpos_tf")
class Transformer(keras.Model):
    """Encoder and decoder, with absolute or relative positions or both.

    The constructor creates all variables.

    Decoding has three forms, which compute the same: `decode` for whole
    targets; `init_cache` and `step` for any number of new positions at a time;
    `init_beams` and `step_beams` for a search, one new position of all
    hypotheses in as few operations as possible.

    Args:
        hparams: `hparam.HParams`, or the dict of one.
        **kwargs: Passed to `keras.Model`.

    Call arguments:
        inputs: `[B, S]` integer tensor of source ids, padded with 0.
        targets: `[B, T]` integer tensor of target ids, padded with 0; not
            shifted: position t sees the targets before t.
        training: bool. Whether dropout is active.

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
        checks.needs_tensorflow(self)
        if not isinstance(hparams, hparam.HParams | Mapping):
            raise errors.UserError(
                "`hparams` must be an HParams or a dict of its fields; "
                "registry.hparams(name) returns a set. Received: "
                f"{hparams!r}."
            )
        if not isinstance(hparams, hparam.HParams):
            hparams = hparam.HParams().replace(**hparams)
        self.hparams = hparams
        self._decoder_hparams = hparams.of_decoder()
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
        self.source_positions, self.target_positions = (
            embeddings.LearnedPositions(
                hparams.max_length, hparams.hidden_size, **policy, name=name
            )
            if own.pos == "emb"
            else None
            for name, own in (
                ("source_positions", hparams),
                ("target_positions", self._decoder_hparams),
            )
        )
        self.symbol_dropout = dropout.SymbolDropout(
            hparams.symbol_dropout, **policy, name="symbol_dropout"
        )
        self.embedding_dropout = dropout.Dropout(
            hparams.layer_prepostprocess_dropout,
            **policy,
            name="embedding_dropout",
        )
        self._add_stacks(policy)
        self.build(None)

    def _add_stacks(self, policy):
        hparams = self.hparams
        decoder_args = arguments.block_arguments(
            hparams, arguments.decoder_positions(hparams)
        )
        # Tuples, because tf.train.Checkpoint loses layers held in lists.
        self.encoder_blocks = tuple(
            blocks.EncoderBlock(
                *arguments.block_arguments(
                    hparams, arguments.encoder_positions(hparams, i)
                ),
                **policy,
                name=f"encoder_layer_{i}",
            )
            for i in range(hparams.encoder_layers)
        )
        self.decoder_blocks = tuple(
            blocks.DecoderBlock(
                *decoder_args,
                arguments.source_positions(hparams),
                **policy,
                name=f"decoder_layer_{i}",
            )
            for i in range(hparams.decoder_layers)
        )
        for stack in (self.encoder_blocks, self.decoder_blocks):
            scheme.share([block.self_attention.positions for block in stack])
        self.encoder_norm = self.decoder_norm = None
        if hparams.layer_preprocess_sequence == "n":
            # Without these, the last sum of a pre-norm stack has no norm.
            self.encoder_norm, self.decoder_norm = (
                projections.LayerNorm(
                    epsilon=hparams.norm_epsilon, **policy, name=name
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
        checks.sizes("inputs", inputs.shape, ("batch", "positions"))
        expected = inputs.shape[0] or "batch", "positions"
        checks.sizes("targets", targets.shape, expected)
        x = self.features(inputs, targets, training=training)
        return self.softmax_embedding.logits(x)

    def fit(self, *args, **kwargs):
        """Refuses: the trainer trains this model.

        Raises:
            UserError: always.
        """
        _refuse("fit", "relpos-trainer trains it")

    def evaluate(self, *args, **kwargs):
        """Refuses, as `fit`."""
        _refuse("evaluate", "relpos-trainer and relpos-decoder score it")

    def predict(self, *args, **kwargs):
        """Refuses, as `fit`."""
        _refuse("predict", "relpos_tf.Translator translates with it")

    def features(self, inputs, targets, training=False, tag_lengths=None):
        """Returns the inputs of the softmax layer, `[B, T, F]`.

        Args:
            inputs: As in the call.
            targets: As in the call.
            training: As in the call.
            tag_lengths: `[B]` integer tensor or None. The number of ids in
                front of each source that `symbol_dropout` keeps.
        """
        memory = self.encode(inputs, training, tag_lengths)
        return self._decode(targets, memory, inputs, training)

    def softmax_table(self):
        """Returns the table that turns features into logits, `[V, F]`."""
        return self.softmax_embedding.table()

    def encode(self, inputs, training=False, tag_lengths=None):
        """Encodes source ids `[B, S]`; returns `[B, S, F]`.

        See `features` for the other arguments.
        """
        x = self._embed_source(inputs, training, tag_lengths)
        may_attend = is_token(inputs)  # [B, 1, 1, S]
        for block in self.encoder_blocks:
            x = block(x, may_attend=may_attend, training=training)
        return _norm(self.encoder_norm, x)

    def attention_weights(self, inputs, targets):
        """Returns the attention weights of a teacher-forced pass.

        Args:
            inputs: As in the call.
            targets: As in the call.

        Returns:
            A dict of lists with a tensor for each layer: `encoder`,
            `[B, H, S, S]`; `decoder`, `[B, H, T, T]`; and `cross`, from the
            decoder to the source, `[B, H, T, S]`.
        """
        weights = {"encoder": [], "decoder": [], "cross": []}
        may_attend = is_token(inputs)
        x = self._embed_source(inputs)
        for block in self.encoder_blocks:
            x, encoder = block(x, may_attend=may_attend, return_weights=True)
            weights["encoder"].append(encoder)
        memory = _norm(self.encoder_norm, x)
        x = self._embed_targets(targets)
        for block in self.decoder_blocks:
            x, decoder, cross = block(
                x, memory, may_attend=may_attend, return_weights=True
            )
            weights["decoder"].append(decoder)
            weights["cross"].append(cross)
        return weights

    def decode(self, targets, memory, inputs, training=False):
        """Scores all targets at once.

        Args:
            targets: `[B, T]` integer tensor, not shifted.
            memory: `[B, S, F]`, the result of `encode` for `inputs`.
            inputs: `[B, S]` integer tensor; its zeros are padding.
            training: bool.

        Returns:
            Logits, float32 `[B, T, V]`.
        """
        x = self._decode(targets, memory, inputs, training)
        return self.softmax_embedding.logits(x)

    def init_cache(self, inputs, memory=None, *, beam_size=1, max_length=None):
        """Returns the cache before the first step of `step`.

        Args:
            inputs: `[B, S]` integer tensor of source ids.
            memory: `[B, S, F]`, the result of `encode`, or None to encode.
            beam_size: int, n. Hypotheses for each source.
            max_length: None for a cache that grows with each step, or an int
                or scalar tensor: the number of positions of a fixed cache.

        Returns:
            A `DecoderCache`.
        """
        if memory is None:
            memory = self.encode(inputs)
        rows = tf.shape(inputs)[0] * beam_size
        return DecoderCache(
            layers=tuple(
                block.self_attention.init_cache(rows, max_length)
                for block in self.decoder_blocks
            ),
            memory=tuple(
                block.encdec_attention.project(memory)
                for block in self.decoder_blocks
            ),
            may_attend=is_token(inputs),
            embedding=self.target_embedding.table(),
            softmax=tf.transpose(self.softmax_embedding.table()),
        )

    def step(self, ids, cache, start):
        """Computes the logits of one or several new positions.

        Args:
            ids: `[B * n, T]` integer tensor: for each of the positions
                `start` to `start + T - 1`, the target before it. The id
                before position 0 is 0.
            cache: `DecoderCache` of the positions before `start`.
            start: int or scalar tensor.

        Returns:
            A pair: logits, float32 `[B * n, T, V]`, equal to the rows of
            `decode` from `start` on; and the cache with these positions.
        """
        x, cache, _ = self._step(ids, cache, start)
        x = _norm(self.decoder_norm, x)
        return self.softmax_embedding.logits_by(x, cache.softmax), cache

    def init_beams(self, inputs):
        """Returns the `BeamCache` of a search for translations of `[B, S]`."""
        memory = self.encode(inputs)  # [B, S, F]
        batch, heads = tf.shape(inputs)[0], self.hparams.num_heads
        depth = self.hparams.hidden_size // heads
        empty = caches.BeamKeysValues(
            tf.zeros([batch, heads, depth, 0], self.compute_dtype),
            tf.zeros([batch, heads, 0, depth], self.compute_dtype),
        )
        rows = tf.reshape(memory, [-1, memory.shape[-1]])  # [B * S, F]
        return BeamCache(
            layers=(empty,) * len(self.decoder_blocks),
            memory=tuple(
                block.encdec_attention.project_rows(rows, batch)
                for block in self.decoder_blocks
            ),
            source=pairs.OnePosition(masks.to_bias(is_token(inputs))),
            kernels=tuple(
                block.self_attention.fused_kernel()
                for block in self.decoder_blocks
            ),
            embedding=self.target_embedding.table(),
            softmax=tf.transpose(self.softmax_embedding.table()),
        )

    def step_beams(self, ids, cache, ancestors):
        """Computes the logits of the next position of all hypotheses.

        Args:
            ids: `[B * n]` integer tensor: the last id of each hypothesis, or
                0 at the first position.
            cache: `BeamCache` of the earlier positions.
            ancestors: int32 `[B, n, T]`: for each hypothesis and each of the
                T positions, this one included, the hypothesis that it
                continues there; at this position, its own index.

        Returns:
            A pair: logits, float32 `[B * n, V]`, and the cache with this
            position.
        """
        x = self.target_embedding.look_up(ids, cache.embedding)  # [B * n, F]
        position = tf.shape(ancestors)[2] - 1
        x = self._add_target_positions(x[:, tf.newaxis], position)[:, 0]
        past = pairs.of_hypotheses(ancestors)
        source = cache.source._replace(number=past.number)
        layers = []
        for block, kernel, layer, memory in zip(
            self.decoder_blocks,
            cache.kernels,
            cache.layers,
            cache.memory,
            strict=True,
        ):
            x, layer = block.step_rows(
                x, kernel, layer, memory, past=past, source=source
            )
            layers.append(layer)
        x = _norm(self.decoder_norm, x)
        logits = self.softmax_embedding.logits_by(x, cache.softmax)
        return logits, cache._replace(layers=tuple(layers))

    def attention(self, inputs, targets):
        """Returns the weights with which each target attends to the source.

        Args:
            inputs: `[B, S]` integer tensor of source ids.
            targets: `[B, T]` integer tensor, not shifted.

        Returns:
            A `[B, L, H, T, S]` tensor; row t holds the weights with which
            target t was predicted.
        """
        shifted = tf.pad(targets, [[0, 0], [1, 0]])[:, :-1]  # [B, T]
        weights = self._step(shifted, self.init_cache(inputs), 0)[2]
        return tf.stack(weights, axis=1)

    def _embed_source(self, inputs, training=False, tag_lengths=None):
        """Embeds source ids with absolute positions; returns `[B, S, F]`."""
        x = self.source_embedding(inputs)  # [B, S, F]
        x = self.symbol_dropout(x, training=training, kept=tag_lengths)
        if self.target_space is not None:
            x = self.target_space(x)
        x = self._add_positions(
            x, self.hparams, self.source_positions, 0, training
        )
        return self.embedding_dropout(x, training=training)

    def _embed_targets(self, targets, training=False):
        """Embeds the target before each position; returns `[B, T, F]`."""
        shifted = tf.pad(targets, [[0, 0], [1, 0]])[:, :-1]  # [B, T]
        x = self.target_embedding(shifted)  # [B, T, F]
        x = self.symbol_dropout(x, training=training)
        x = self._add_target_positions(x, 0, training)
        return self.embedding_dropout(x, training=training)

    def _decode(self, targets, memory, inputs, training):
        x = self._embed_targets(targets, training)
        may_attend = is_token(inputs)
        for block in self.decoder_blocks:
            x = block(x, memory, may_attend=may_attend, training=training)
        return _norm(self.decoder_norm, x)

    def _step(self, ids, cache, start):
        x = self.target_embedding.look_up(ids, cache.embedding)  # [B * n, T, F]
        x = self._add_target_positions(x, start)
        layers, weights = [], []
        for block, layer, memory in zip(
            self.decoder_blocks, cache.layers, cache.memory, strict=True
        ):
            x, layer, weight = block.step(
                x, layer, memory, start=start, may_attend=cache.may_attend
            )
            layers.append(layer)
            weights.append(weight)
        return x, cache._replace(layers=tuple(layers)), weights

    def _add_target_positions(self, x, start, training=False):
        own, learned = self._decoder_hparams, self.target_positions
        return self._add_positions(x, own, learned, start, training)

    def _add_positions(self, x, own, learned, start, training):
        """Adds the absolute positions of a stack, from `start` on.

        Args:
            x: `[B, L, F]` tensor.
            own: `hparam.HParams` of the stack.
            learned: None or `embeddings.LearnedPositions`.
            start: int or scalar tensor.
            training: bool.
        """
        batch, length, _ = tf.unstack(tf.shape(x))
        positions = start + tf.range(length)
        if learned is not None:
            return x + learned(positions)
        if own.pos == "timing":
            most = own.max_position_shift
            if training and most:
                positions = embeddings.shifted_positions(batch, length, most)
            signal = embeddings.timing_signal(positions, x.shape[-1])
            return x + tf.cast(signal, x.dtype)
        return x

    def get_config(self):
        return super().get_config() | {"hparams": self.hparams.to_dict()}


def _refuse(method, instead):
    """Refuses a method of Keras' models."""
    raise errors.UserError(
        f"`Transformer.{method}` is not supported: {instead}, and "
        "model(inputs, targets) returns its logits. For Keras' own training, "
        "put `relpos_tf.RelativeMultiHeadAttention` into a Keras model."
    )


def _norm(norm, x):
    """Applies the norm at the end of a stack, where there is one."""
    return x if norm is None else norm(x)
