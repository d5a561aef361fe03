"""The decoder a few positions at a time.

`init_cache` and `step` are for anyone: any number of positions, caches that
grow or not. `init_beams` and `step_beams` are for a search: one position of
many hypotheses, in as few operations as may be.

Shapes: B batch, S source length, T target length, V vocabulary, F features,
H heads, D depth per head, n hypotheses of one source.
"""

from typing import NamedTuple

import tensorflow as tf

from relpos_tf.layers import caches
from relpos_tf.layers import masks
from relpos_tf.layers import pairs


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


class BeamCache(NamedTuple):
    """What a beam search keeps between steps; see `layers.pairs.of_hypotheses`.

    Attributes:
        layers: per block, self-attention's keys and values so far. They stay
            with their source, whichever hypotheses go on.
        memory: per block, those of the source.
        source: which of them may be looked at.
        kernels: per block, self-attention's `fused_kernel`.
        embedding: as of `DecoderCache`, and
        softmax: too.
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


class Stepwise:
    """What a `Transformer` does beside encoding and decoding at once."""

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
        kind = caches.FixedCache
        if max_length is None:
            kind, max_length = caches.GrowingCache, 0
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

    def init_beams(self, inputs):
        """Returns the `BeamCache` of a search for translations of `[B, S]`."""
        memory = self.encode(inputs)  # [B, S, F]
        batch, heads = tf.shape(inputs)[0], self.hparams.num_heads
        depth = self.hparams.hidden_size // heads
        nothing = caches.BeamKeysValues(
            tf.zeros([batch, heads, depth, 0], self.compute_dtype),
            tf.zeros([batch, heads, 0, depth], self.compute_dtype),
        )
        rows = tf.reshape(memory, [-1, memory.shape[-1]])  # [B * S, F]
        return BeamCache(
            layers=(nothing,) * len(self.decoder_blocks),
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
        """Scores what follows `ids` in n hypotheses of each source.

        Args:
            ids: `[B * n]` integer tensor: the last id of each; 0 at first.
            cache: `BeamCache` of the positions before.
            ancestors: int32 `[B, n, T]`: which of the n hypotheses at each of
                the T positions so far each hypothesis goes back to; at the
                last, to itself.

        Returns:
            A pair: logits, float32 `[B * n, V]`, and the cache with this
            position.
        """
        x = self.target_embedding.look_up(ids, cache.embedding)  # [B * n, F]
        position = tf.shape(ancestors)[2] - 1
        x = self._add_positions(
            x[:, tf.newaxis], self.target_positions, position
        )[:, 0]
        past = pairs.of_hypotheses(ancestors)
        layers = []
        for block, kernel, layer, memory in zip(
            self.decoder_blocks,
            cache.kernels,
            cache.layers,
            cache.memory,
            strict=True,
        ):
            x, layer = block.step_rows(
                x, kernel, layer, memory, past=past, source=cache.source
            )
            layers.append(layer)
        if self.decoder_norm is not None:
            x = self.decoder_norm(x)
        logits = self.softmax_embedding.logits_by(x, cache.softmax)
        return logits, cache._replace(layers=tuple(layers))

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
            x, layer, weight = block.step(
                x, layer, memory, start=start, may_attend=cache.may_attend
            )
            layers.append(layer)
            weights.append(weight)
        return x, cache._replace(layers=tuple(layers)), weights
