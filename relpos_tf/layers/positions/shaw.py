"""Relative position representations: a table for the keys, one for the values.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, k clipping,
R = 2k+1 rows of a table (left + 1 + right if keys before and after the query
are clipped at two distances), n hypotheses of one source.
"""

import keras
import tensorflow as tf

from relpos_tf.layers import checks
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import relative
from relpos_tf.layers.positions import scheme
from relpos_tf.layers.positions import tables

_PREFIX = "relative_positions_"


@keras.saving.register_keras_serializable(package="relpos_tf")
class Shaw(scheme.Scheme):
    """Learned vectors of the clipped distance between query and key.

        e[i, j] = q[i] . (key[j] + a_key[clip(j - i)])
        z[i]    = sum_j softmax(e[i])[j] (value[j] + a_value[clip(j - i)])

    Args:
        max_relative_position: int, k. Distances beyond are clipped to it.
        add_to_keys: bool. Whether the keys get vectors (equation 4).
        add_to_values: bool. Whether the values get vectors (equation 3).
        heads_share: bool. One pair of tables for all heads, instead of one
            for each.
        implementation: str. See `relative.relative_attention`.
        max_relative_position_right: None or int: k of the keys after the
            query, if it is another than that of the keys before it.

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), section 3; two
        distances as in w2v-BERT 2.0, [Seamless, 2023](
        https://arxiv.org/abs/2312.05187).
    """

    computes = True
    name = "relative positions"

    def __init__(
        self,
        max_relative_position: int,
        *,
        add_to_keys: bool = True,
        add_to_values: bool = True,
        heads_share: bool = False,
        implementation: str = "auto",
        max_relative_position_right: int | None = None,
    ):
        checks.integer("max_relative_position", max_relative_position, least=0)
        if max_relative_position_right is not None:
            checks.integer(
                "max_relative_position_right",
                max_relative_position_right,
                least=0,
            )
        for name, value in (
            ("add_to_keys", add_to_keys),
            ("add_to_values", add_to_values),
            ("heads_share", heads_share),
        ):
            checks.flag(name, value)
        checks.choice(
            "implementation", implementation, relative.IMPLEMENTATIONS
        )
        self.left = self.right = int(max_relative_position)
        self.max_relative_position = self.left
        self.max_relative_position_right = None
        if max_relative_position_right is not None:
            self.right = int(max_relative_position_right)
            self.max_relative_position_right = self.right
        self.add_to_keys = add_to_keys
        self.add_to_values = add_to_values
        self.heads_share = heads_share
        self.implementation = implementation
        self._tables = {}

    def build(self, layer):
        self._compute_value = layer.compute_value
        for name, shape in self.weight_shapes(
            layer.num_heads, layer.depth
        ).items():
            # Glorot's limit, for each head by itself.
            table = layer.add_uniform(name, shape, fans=sum(shape[-2:]))
            self._tables[name.removeprefix(_PREFIX)] = table

    def weight_shapes(self, num_heads, depth):
        shape = (self.left + 1 + self.right, depth)  # [R, D]
        if not self.heads_share:
            shape = (num_heads, *shape)
        shapes = {}
        if self.add_to_keys:
            shapes[f"{_PREFIX}keys"] = shape
        if self.add_to_values:
            shapes[f"{_PREFIX}values"] = shape
        return shapes

    def logits(self, q, keys_values, pairs):
        table = self._table("keys")
        if not isinstance(pairs, pairs_lib.OnePosition):
            return relative.relative_logits(
                q,
                keys_values.keys,
                table,
                pairs,
                self.implementation,
                self.left,
            )
        logits = keys_values.dot(q)  # [B, H, n, K]
        if table is None:
            return logits
        a = self._vectors_of_keys(table, pairs)
        return logits + tables.multiply(q, a, True, tf.shape(logits))

    def output(self, weights, keys_values, pairs, sums_to_one):
        table = self._table("values")
        if not isinstance(pairs, pairs_lib.OnePosition):
            return relative.relative_output(
                weights,
                keys_values.values,
                table,
                pairs,
                self.implementation,
                sums_to_one,
                self.left,
            )
        output = tf.matmul(weights, keys_values.values)  # [B, H, n, D]
        if table is None:
            return output
        a = self._vectors_of_keys(table, pairs)
        return output + tables.multiply(weights, a, False, tf.shape(output))

    def pair_vectors(self, kind, pairs):
        """Returns the vectors of pairs, `[Q, K, D]` or `[H, Q, K, D]`, or None.

        Q is 1 if all queries have one position.

        Args:
            kind: str. "keys" or "values".
            pairs: As in `allowed`.
        """
        table = self._table(kind)
        if table is None:
            return None
        if isinstance(pairs, pairs_lib.OnePosition):
            vectors = self._vectors_of_keys(table, pairs)
            return vectors[..., tf.newaxis, :, :]
        return relative.pair_vectors(table, pairs, self.left)

    def _table(self, kind):
        """Returns a table in the layer's compute dtype, or None."""
        if kind not in self._tables:
            return None
        return self._compute_value(self._tables[kind])

    def _vectors_of_keys(self, table, pairs):
        """Returns the vectors `[K, D]` or `[H, K, D]` for one position."""
        left, right = self.left, self.right
        ids = tf.clip_by_value(pairs.key_distances, -left, right) + left  # [K]
        # In a search nobody needs a gradient.
        return tf.gather(table, ids, axis=-2)

    def tables(self):
        return dict(self._tables)

    def vector_numbers(self, num_heads, depth):
        """Returns the size of a pair's vectors and one-hot row."""
        heads = 1 if self.heads_share else num_heads
        return heads * depth + self.left + 1 + self.right

    def numbers_per_pair(self, logits, num_heads, depth):
        if self.implementation != "reshape":
            return logits
        return logits + self.vector_numbers(num_heads, depth)

    def summary(self):
        if self.left == self.right:
            return f"relative k={self.left}"
        return f"relative k={self.left} before and {self.right} after"

    def why_not_ctranslate2(self):
        if self.add_to_values and not self.add_to_keys:
            return (
                "it ignores relative positions on the values without those on "
                "the keys (add_relative_to_keys=false)"
            )
        return None

    def get_config(self):
        return {
            "max_relative_position": self.max_relative_position,
            "add_to_keys": self.add_to_keys,
            "add_to_values": self.add_to_values,
            "heads_share": self.heads_share,
            "implementation": self.implementation,
            "max_relative_position_right": self.max_relative_position_right,
        }
