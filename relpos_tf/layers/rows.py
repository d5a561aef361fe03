"""Multi-head attention of hypotheses at one position, given as rows.

Shapes: B sources, n hypotheses of each, K keys, F features, H heads, D depth
per head.
"""

import tensorflow as tf

from relpos_tf.layers import beams
from relpos_tf.layers import projections


class RowAttention:
    """What a `MultiHeadAttention` does for beam search; see `beams`."""

    def project_rows(self, rows, sources) -> beams.BeamKeysValues:
        """Projects `[B * K, F]` to keys and values of `sources`, B."""
        keys, values = (
            self._split_rows(f(rows), sources) for f in (self.k, self.v)
        )
        return beams.BeamKeysValues(
            tf.transpose(keys, [0, 2, 3, 1]), tf.transpose(values, [0, 2, 1, 3])
        )

    def fused_kernel(self):
        """Returns one kernel `[F, 3 F]` for queries, scaled, keys and values.

        One product with it takes less time than three; read it once.
        """
        return projections.fuse(
            (self.q, self.k, self.v),
            self.compute_dtype,
            scales=(self.query_scale, 1.0, 1.0),
        )

    def step_rows(self, rows, kernel, cache, past):
        """Attends from hypotheses at one position to their past and themselves.

        Args:
            rows: `[B * n, F]` tensor: the n hypotheses of each source.
            kernel: What `fused_kernel` returned.
            cache: `beams.BeamKeysValues` of the positions before.
            past: `beams.Past`.

        Returns:
            A pair: a `[B * n, F]` tensor, and the cache with this position.
        """
        sources = tf.shape(cache.values)[0]
        depth = self.hidden_size // self.num_heads
        qkv = tf.matmul(rows, kernel)  # [B * n, 3 F]
        qkv = tf.reshape(qkv, [sources, -1, 3, self.num_heads, depth])
        q, k, v = tf.unstack(tf.transpose(qkv, [2, 0, 3, 1, 4]))  # [B, H, n, D]
        k = tf.transpose(k, [0, 1, 3, 2])  # [B, H, D, n]
        cache = cache.extend(beams.BeamKeysValues(k, v))
        if self.localness is not None:
            past = past._replace(bias=self._local_bias(rows, cache, past))
        return self._attend_rows(q, cache, past), cache

    def _local_bias(self, rows, cache, past):
        """Returns the bias of hypotheses at the position of the last keys."""
        size = 1 - past.distances[0]  # the first key is at position 0
        rows = tf.reshape(
            rows, [tf.shape(cache.values)[0], -1, self.hidden_size]
        )
        local = self.localness(
            rows,
            tf.transpose(cache.keys, [0, 1, 3, 2]),
            size=size,
            positions=past.distances + size - 1,
            may_attend=past.bias == 0.0,
        )
        return local + tf.cast(past.bias, local.dtype)

    def attend_rows(self, rows, keys_values, past):
        """Attends from hypotheses at one position.

        Args:
            rows: `[B * n, F]` tensor: the n hypotheses of each source.
            keys_values: `beams.BeamKeysValues` of B sources.
            past: `beams.Past`.

        Returns:
            A `[B * n, F]` tensor.
        """
        q = self._split_rows(self.q(rows), tf.shape(keys_values.values)[0])
        q = tf.transpose(q, [0, 2, 1, 3]) * self.query_scale  # [B, H, n, D]
        return self._attend_rows(q, keys_values, past)

    def _attend_rows(self, q, keys_values, past):
        output = beams.beam_attention(
            q,
            keys_values,
            self._table(self.key_table),
            self._table(self.value_table),
            past,
            self._table(self.score_vectors),
        )
        output = tf.transpose(output, [0, 2, 1, 3])  # [B, n, H, D]
        output = tf.reshape(output, [-1, self.hidden_size])
        return self.output_transform(output)

    @property
    def query_scale(self) -> float:
        """What queries are multiplied with: dot products grow with D."""
        if self.score == "additive":
            return 1.0
        return (self.hidden_size // self.num_heads) ** -0.5

    def _split_rows(self, rows, sources):
        depth = self.hidden_size // self.num_heads
        return tf.reshape(rows, [sources, -1, self.num_heads, depth])
