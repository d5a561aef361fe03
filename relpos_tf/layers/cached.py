"""Multi-head attention to keys and values that were projected before.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features.
"""

import tensorflow as tf

from relpos_tf.layers import caches
from relpos_tf.layers import masks
from relpos_tf.layers import projections


class CachedAttention:
    """What a `MultiHeadAttention` does with a memory, or step by step."""

    def project(self, memory) -> caches.KeysValues:
        """Projects `[B, K, F]` to keys and values, once for many queries."""
        kernel = projections.fuse((self.k, self.v), self.compute_dtype)
        return caches.KeysValues(
            *projections.to_heads(memory, kernel, self.num_heads, parts=2)
        )

    def attend(self, queries, keys_values, **kwargs):
        """Returns the output of `attend_and_weigh`."""
        return self.attend_and_weigh(queries, keys_values, **kwargs)[0]

    def attend_and_weigh(self, queries, keys_values, *, may_attend=None):
        """Attends from `[B, Q, F]` to keys and values that are projected.

        Args:
            queries: `[B, Q, F]` tensor.
            keys_values: `caches.KeysValues`, `[B, H, K, D]` each.
            may_attend: As in the call.

        Returns:
            A pair: a `[B, Q, F]` tensor, and the weights `[B, H, Q, K]`.
        """
        q = self._project_queries(queries)
        return self._attend(queries, q, keys_values, may_attend=may_attend)

    def step(self, queries, cache, *, start):
        """Attends from new positions to all positions so far.

        Args:
            queries: `[B, Q, F]`: the positions `start` to `start + Q - 1`.
            cache: `caches.GrowingCache` or `caches.FixedCache` of the
                positions before.
            start: int or scalar tensor.

        Returns:
            A pair: a `[B, Q, F]` tensor, and the cache with these positions.
        """
        q, *keys_values = self._project_all(queries)
        cache = cache.extend(*keys_values, start)
        may_attend = None  # One query may see all that a growing cache has.
        if queries.shape[1] != 1 or not isinstance(cache, caches.GrowingCache):
            may_attend = masks.causal_mask(
                tf.shape(queries)[1], tf.shape(cache.keys)[2], start
            )
        output, _ = self._attend(
            queries,
            q,
            cache,
            may_attend=may_attend,
            query_start=start,
            causal=True,
        )
        return output, cache

    def _project_all(self, x):
        """Projects `[B, Q, F]` to queries, keys, values `[B, H, Q, D]`."""
        return projections.to_heads(
            x, self.fused_kernel(), self.num_heads, parts=3
        )

    def _project_queries(self, queries):
        # Scaled once, for the content term and for the relative one.
        kernel = projections.fuse(
            (self.q,), self.compute_dtype, (self.query_scale,)
        )
        return projections.to_heads(queries, kernel, self.num_heads, parts=1)[0]
