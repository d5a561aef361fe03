"""The Transformer of an `HParams`, which no layer below knows.

Shapes: B batch, S source length, T target length, V vocabulary, F features,
H heads, D depth per head, n hypotheses of one source, L decoder layers.
"""

import functools
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.layers import blocks
from relpos_tf.layers import checks
from relpos_tf.layers import dropout
from relpos_tf.layers import embeddings
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers import projections
from relpos_tf.layers.positions import scheme
from relpos_tf.models import arguments


class DecoderCache(NamedTuple):
    """What `step` keeps; only `layers` changes, and follows n hypotheses."""

    layers: tuple  # per block, self-attention's cache, [B * n, H, T, D]
    memory: tuple  # per block, keys and values of the source, [B, H, S, D]
    kernels: tuple  # per block, self-attention's `step_kernel`
    may_attend: tf.Tensor  # bool [B, 1, 1, S], True where the source has tokens
    embedding: tf.Tensor  # the table of the targets, [V, F]
    softmax: tf.Tensor  # the table of the softmax, [F, V]


def is_token(ids: tf.Tensor) -> tf.Tensor:
    """Returns where `[B, S]` ids are not padding: bool `[B, 1, 1, S]`."""
    return tf.not_equal(ids, 0)[:, tf.newaxis, tf.newaxis, :]


@keras.saving.register_keras_serializable(package="relpos_tf")
class Transformer(keras.Model):
    """Encoder and decoder, with absolute or relative positions or both.

    The constructor creates all variables. `decode` computes whole targets,
    `step` the same for any number of new positions at a time.

    Args:
        hparams: `hparam.HParams`, or the dict of one.
        **kwargs: Passed to `keras.Model`. `dtype` is float32 by default.

    Call arguments:
        inputs: `[B, S]` integer tensor of source ids, padded with 0.
        targets: `[B, T]` integer tensor of target ids, padded with 0; not
            shifted: position t sees the targets before t.
        training: bool. Whether dropout is active.

    Returns:
        Logits, float32 `[B, T, V]`, of the target at each position.

    Example:
    >>> model = Transformer({"vocab_size": 11, "hidden_size": 16})
    >>> tuple(model(tf.constant([[5, 1]]), tf.constant([[7, 3, 1]])).shape)
    (1, 3, 11)

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155);
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762).
    """

    def __init__(
        self,
        hparams: hparam.HParams | Mapping[str, Any],
        name: str = "transformer",
        **kwargs: Any,
    ):
        # Not keras.json's floatx, which a run does not know.
        super().__init__(name=name, **{"dtype": "float32", **kwargs})
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
        table = functools.partial(
            embeddings.TokenEmbedding,
            hparams.vocab_size,
            hparams.hidden_size,
            **policy,
        )
        self.target_embedding = table(name="target_embedding")
        self.source_embedding = self.softmax_embedding = self.target_embedding
        if not hparams.shared_embedding:
            self.source_embedding = table(name="source_embedding")
        if not hparams.shared_embedding_and_softmax_weights:
            self.softmax_embedding = table(name="softmax")
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
        # Tuples, because tf.train.Checkpoint loses layers held in lists.
        self.encoder_blocks = tuple(
            blocks.EncoderBlock(
                *arguments.block_arguments(hparams, positions),
                **policy,
                name=f"encoder_layer_{i}",
            )
            for i, positions in enumerate(arguments.encoder_positions(hparams))
        )
        self.decoder_blocks = tuple(
            blocks.DecoderBlock(
                *arguments.block_arguments(hparams, positions),
                **policy,
                name=f"decoder_layer_{i}",
            )
            for i, positions in enumerate(arguments.decoder_positions(hparams))
        )
        self.encoder_norm = self.decoder_norm = None
        if hparams.layer_preprocess_sequence == "n":
            # Without these, the last sum of a pre-norm stack has no norm.
            self.encoder_norm, self.decoder_norm = (
                projections.LayerNorm(
                    epsilon=hparams.norm_epsilon, **policy, name=name
                )
                for name in ("encoder_norm", "decoder_norm")
            )

    def build(self, input_shape: Any) -> None:
        if getattr(self, "built", False):
            return
        features = (None, None, self.hparams.hidden_size)
        for layer in self._flatten_layers(include_self=False, recursive=False):
            if not layer.built:
                layer.build(features)
        self.built = True

    def call(
        self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        checks.sizes("inputs", inputs.shape, ("batch", "positions"))
        expected = inputs.shape[0] or "batch", "positions"
        checks.sizes("targets", targets.shape, expected)
        x = self.features(inputs, targets, training=training)
        return self.softmax_embedding.logits(x)

    def fit(self, *args: Any, **kwargs: Any) -> None:
        """Refuses Keras' own training, evaluation and prediction."""
        raise errors.UserError(
            "`fit`, `evaluate` and `predict` are not supported: relpos-trainer "
            "trains a Transformer, relpos-decoder scores it, relpos_tf."
            "Translator translates with it, and model(inputs, targets) returns "
            "its logits. For Keras' own training, put `relpos_tf."
            "RelativeMultiHeadAttention` into a Keras model."
        )

    evaluate = predict = fit

    def features(
        self,
        inputs: tf.Tensor,
        targets: tf.Tensor,
        training: bool = False,
        kept: Sequence[tf.Tensor | None] = (None, None),
    ) -> tf.Tensor:
        """Returns the inputs of the softmax layer, `[B, T, F]`.

        `symbol_dropout` drops none of the first `kept` source and target ids of
        each row: two `[B]` tensors.
        """
        memory = self.encode(inputs, training, kept[0])
        return self.decode(targets, memory, inputs, training, kept[1])

    def softmax_table(self) -> tf.Tensor:
        """Returns the table that turns features into logits, `[V, F]`."""
        return self.softmax_embedding.table()

    def encode(
        self,
        inputs: tf.Tensor,
        training: bool = False,
        kept: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Encodes `[B, S]` source ids: `[B, S, F]`."""
        x = self._embed_source(inputs, training, kept)
        length = pairs_lib.size(x, 1)
        pairs = pairs_lib.Pairs(length, length, 0, is_token(inputs))
        if training:
            _share(self.encoder_blocks, pairs)
        for block in self.encoder_blocks:
            x = block(x, pairs=pairs, training=training)
        return _norm(self.encoder_norm, x)

    def attention_weights(
        self, inputs: tf.Tensor, targets: tf.Tensor
    ) -> dict[str, list[tf.Tensor]]:
        """Returns the attention weights of the call, a tensor for each layer.

        The keys are `encoder`, `[B, H, S, S]`; `decoder`, `[B, H, T, T]`; and
        `cross`, from the decoder to the source, `[B, H, T, S]`.
        """
        weights: dict[str, list] = {"encoder": [], "decoder": [], "cross": []}
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

    def decode(
        self,
        targets: tf.Tensor,
        memory: tf.Tensor,
        inputs: tf.Tensor,
        training: bool = False,
        kept: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns `features`, with a `memory` that `encode` returned."""
        x = self._embed_targets(targets, training, kept)
        length = pairs_lib.size(x, 1)
        pairs = pairs_lib.Pairs(length, length, 0, causal=True)
        if training:
            _share(self.decoder_blocks, pairs)
        may_attend = is_token(inputs)
        for block in self.decoder_blocks:
            x = block(
                x, memory, may_attend=may_attend, pairs=pairs, training=training
            )
        return _norm(self.decoder_norm, x)

    def init_cache(
        self,
        inputs: tf.Tensor,
        max_length: int | tf.Tensor | None = None,  # of a fixed cache
    ) -> DecoderCache:
        """Returns the cache before the first `step`: fixed, or it grows."""
        memory = self.encode(inputs)
        batch = tf.shape(inputs)[0]
        return DecoderCache(
            layers=tuple(
                block.self_attention.init_cache(batch, max_length)
                for block in self.decoder_blocks
            ),
            memory=tuple(
                block.encdec_attention.project(memory)
                for block in self.decoder_blocks
            ),
            kernels=tuple(
                block.self_attention.step_kernel()
                for block in self.decoder_blocks
            ),
            may_attend=is_token(inputs),
            embedding=self.target_embedding.table(),
            softmax=tf.transpose(self.softmax_embedding.table()),
        )

    def step(
        self, ids: tf.Tensor, cache: DecoderCache, start: int | tf.Tensor
    ) -> tuple[tf.Tensor, DecoderCache]:
        """Returns the logits `[B * n, T, V]` of new positions, and the cache.

        The logits are float32, and equal the rows of `decode`.

        Args:
            ids: `[B * n, T]` integer tensor: for each of the positions from
                `start` on, the target before it, 0 for position 0.
            cache: `DecoderCache` of the positions before `start`.
            start: int or scalar tensor.
        """
        x = self.target_embedding.look_up(ids, cache.embedding)  # [B * n, T, F]
        x = self._add_positions(x, start, is_target=True)
        pairs = self.decoder_blocks[0].self_attention.step_pairs(
            pairs_lib.size(ids, 1), cache.layers[0], start
        )
        _share(self.decoder_blocks, pairs)
        layers = []
        for block, layer, memory, kernel in zip(
            self.decoder_blocks,
            cache.layers,
            cache.memory,
            cache.kernels,
            strict=True,
        ):
            x, layer, _ = block.step(
                x,
                layer,
                memory,
                start=start,
                may_attend=cache.may_attend,
                kernel=kernel,
                pairs=pairs,
            )
            layers.append(layer)
        x = _norm(self.decoder_norm, x)
        logits = self.softmax_embedding.logits(x, cache.softmax)
        return logits, cache._replace(layers=tuple(layers))

    def _embed_source(self, inputs, training=False, kept=None):
        """Embeds source ids with absolute positions: `[B, S, F]`."""
        x = self.source_embedding(inputs)  # [B, S, F]
        x = self.symbol_dropout(x, training=training, kept=kept)
        if self.target_space is not None:
            x = self.target_space(x)
        x = self._add_positions(x, 0, training)
        return self.embedding_dropout(x, training=training)

    def _embed_targets(self, targets, training=False, kept=None):
        """Embeds the target before each position; returns `[B, T, F]`."""
        shifted = tf.pad(targets, [[0, 0], [1, 0]])[:, :-1]  # [B, T]
        x = self.target_embedding(shifted)  # [B, T, F]
        x = self.symbol_dropout(x, training=training, kept=kept)
        x = self._add_positions(x, 0, training, is_target=True)
        return self.embedding_dropout(x, training=training)

    def _add_positions(self, x, start, training=False, is_target=False):
        """Adds absolute positions from `start` on."""
        own, learned = self.hparams, self.source_positions
        if is_target:
            own, learned = self._decoder_hparams, self.target_positions
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

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"hparams": self.hparams.to_dict()}


def _share(blocks_of_stack, pairs):
    """Computes in the pairs what the layers of a stack share."""
    scheme.share([one.self_attention for one in blocks_of_stack], pairs)


def _norm(norm, x):
    """Applies the norm at the end of a stack, where there is one."""
    return x if norm is None else norm(x)
