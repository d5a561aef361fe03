"""Self-attention with relative position representations.

The equations of Shaw et al. (2018) for queries q = x W_q / sqrt(D), keys x W_k
and values x W_v. The weights w[i] of query i are softmax(e[i]).

    (1)  z[i] = sum_j w[i, j] value[j]
    (2)  e[i, j] = q[i] . key[j]

The pair of positions i and j has two learned vectors, one for each of the 2k+1
distances j - i clipped to [-k, k]:

    (3)  z[i] = sum_j w[i, j] (value[j] + a_value[i, j])
    (4)  e[i, j] = q[i] . (key[j] + a_key[i, j])
         a[i, j] = table[clip(j - i, -k, k) + k]

To compute (4) without a sum for each pair in every example and head:

    (5)  e[i, j] = q[i] . key[j] + q[i] . a_key[i, j]

Equation 3 is split in the same way. The implementation "reshape" is the
paper's: it looks up a[i, j] for all pairs. "compact" multiplies with the rows
of the tables alone, see `band`; "gather" looks up the vector of each distance,
see `by_distance`. All give the same output and weights.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, R = 2k+1 rows of
a table; left + 1 + right rows if keys before and after the query are clipped at
two distances. The row of distance 0 is `left`.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from relpos_tf import errors
from relpos_tf.layers import checks
from relpos_tf.layers import pairs as pairs_lib
from relpos_tf.layers.positions import band
from relpos_tf.layers.positions import by_distance
from relpos_tf.layers.positions import scheme
from relpos_tf.utils import graphs

IMPLEMENTATIONS = ("auto", "reshape", "compact", "gather")
_EXACT = "exact"  # "reshape", also for what is not within a softmax


@keras.saving.register_keras_serializable(package="relpos_tf")
class Shaw(scheme.Scheme):
    """Learned vectors of the clipped distance between query and key.

    Args:
        max_relative_position: int, k. Distances beyond are clipped to it.
        add_to_keys: bool. Whether the keys get vectors (equation 4).
        add_to_values: bool. Whether the values get vectors (equation 3).
        heads_share: bool. One pair of tables for all heads, instead of one
            for each.
        implementation: str. See `relative_attention`. Beside a scheme whose
            `logits`, `output` or `attend` sees the numbers, always "reshape".
        max_relative_position_right: None or int: another k of the keys after
            the query.

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), section 3; two
        distances as in w2v-BERT 2.0, [Seamless, 2023](
        https://arxiv.org/abs/2312.05187).
    """

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
        self.max_relative_position = self.left = checks.integer(
            "max_relative_position", max_relative_position, least=0
        )
        right = max_relative_position_right
        self.max_relative_position_right = self.right = checks.integer(
            "max_relative_position_right",
            self.left if right is None else right,
            least=0,
        )
        self.add_to_keys = checks.flag("add_to_keys", add_to_keys)
        self.add_to_values = checks.flag("add_to_values", add_to_values)
        self.heads_share = checks.flag("heads_share", heads_share)
        self.implementation = checks.choice(
            "implementation", implementation, IMPLEMENTATIONS
        )

    def build(self, layer: keras.layers.Layer) -> None:
        self._compute_value = layer.compute_value
        is_seen = any(map(_sees_numbers, layer.positions))
        self._form = _EXACT if is_seen else self.implementation
        self.tables = {}  # the variables, by kind
        shape = (self.left + 1 + self.right, layer.depth)  # [R, D]
        heads = () if self.heads_share else (layer.num_heads,)
        for kind, has_table in (
            ("keys", self.add_to_keys),
            ("values", self.add_to_values),
        ):
            if has_table:
                self.tables[kind] = layer.add_scheme_weight(
                    f"relative_positions_{kind}",
                    (*heads, *shape),
                    scheme.glorot_uniform(sum(shape)),  # for each head
                )

    def logits(
        self, logits: tf.Tensor, q: tf.Tensor, pairs: pairs_lib.Pairs
    ) -> tf.Tensor:
        if "keys" not in self.tables:
            return logits
        rows = self._rows("keys", pairs)
        return _add_to_logits(logits, q, rows, pairs)

    def output(
        self, weights: tf.Tensor, pairs: pairs_lib.Pairs, sums_to_one: bool
    ) -> tuple[tf.Tensor, tf.Tensor | float]:
        if "values" not in self.tables:
            return weights, 0.0
        rows = self._rows("values", pairs)
        return _weighted_vectors(weights, rows, pairs, sums_to_one)

    def pair_vectors(
        self, kind: str, pairs: pairs_lib.Pairs
    ) -> tf.Tensor | float:
        """Returns the vectors of "keys" or "values": `[.., Q, K, D]`, or 0."""
        if kind not in self.tables:
            return 0.0
        table = self._compute_value(self.tables[kind])
        return _look_up([table], pairs, _EXACT, self.left)[0].vectors

    @staticmethod
    def share(schemes: Sequence[Any], pairs: pairs_lib.Pairs) -> None:
        owners = [(one, kind) for one in schemes for kind in one.tables]
        settings = {
            (one._form, one.left, one.tables[kind].shape)
            for one, kind in owners
        }
        if len(settings) != 1:  # one product has tables of one size
            return
        ((form, left, _),) = settings
        tables = [one.tables[kind] for one, kind in owners]
        tables = schemes[0]._compute_value(*tables)  # [P, .., R, D]
        rows = _look_up(tables, pairs, form, left)
        pairs.known.update(zip(owners, rows, strict=True))

    def _rows(self, kind, pairs):
        """Returns the `_Rows` of a table."""
        table = self.tables[kind]

        def look_up():
            tables = [self._compute_value(table)]
            return _look_up(tables, pairs, self._form, self.left)[0]

        return pairs.once((self, kind), look_up)

    def summary(self) -> str:
        if not (self.add_to_keys or self.add_to_values):
            return "no relative vectors"
        if self.left == self.right:
            return f"relative k={self.left}"
        return f"relative k={self.left} before and {self.right} after"

    def why_not_ctranslate2(self) -> str | None:
        if self.add_to_values and not self.add_to_keys:
            return (
                "it ignores relative positions on the values without those on "
                "the keys (add_relative_to_keys=false)"
            )
        return None


class _Rows(NamedTuple):
    """What a call needs of a table."""

    form: str
    left: int
    table: tf.Tensor  # [R, D] or [H, R, D]
    # [Q, K, D] of pairs, [S, D] of distances, or with heads; None if compact.
    vectors: tf.Tensor | None


def relative_position_ids(
    query_length: int | tf.Tensor,
    key_length: int | tf.Tensor,
    max_relative_position: int,
) -> tf.Tensor:
    """Returns `clip(j - i, -k, k) + k` of each query and key: int32 `[Q, K]`.

    It is the row of a table. The queries are the last keys.
    """
    k = checks.integer("max_relative_position", max_relative_position, least=0)
    distances = pairs_lib.Pairs(query_length, key_length).distances()
    return tf.clip_by_value(distances, -k, k) + k


def relative_attention_inner(
    x: tf.Tensor, y: tf.Tensor | None, z: tf.Tensor, transpose: bool
) -> tf.Tensor:
    """Multiplies `x` with `y`, and with vectors `z` of pairs (section 3.3).

    `x y + x z` needs no broadcast of `z` to the batch, as `x (y + z)` does. The
    name is tensor2tensor's. Returns `[B, H, Q, K]` for queries, `[B, H, Q, D]`
    for weights.

    Args:
        x: `[B, H, Q, K]` weights, or `[B, H, Q, D]` queries.
        y: `[B, H, K, D]` values or keys; None: only the product with `z`.
        z: `[Q, K, D]` or `[H, Q, K, D]` vectors of the pairs.
        transpose: bool. True for queries, whose last axis is D.
    """
    if z.shape[-3] == 1:  # a single query
        xz = band.multiply(x, tf.squeeze(z, -3), transpose)
    elif z.shape.rank == 4:
        by_position = tf.transpose(x, [1, 2, 0, 3])  # [H, Q, B, D or K]
        xz = tf.matmul(by_position, z, transpose_b=transpose)
        xz = tf.transpose(xz, [2, 0, 1, 3])  # [B, H, Q, K or D]
    else:
        batch, heads, queries, width = tf.unstack(tf.shape(x))
        by_position = tf.transpose(x, [2, 0, 1, 3])  # [Q, B, H, D or K]
        by_position = tf.reshape(by_position, [queries, batch * heads, width])
        xz = tf.matmul(by_position, z, transpose_b=transpose)  # [Q, B*H, ...]
        xz = tf.reshape(xz, [queries, batch, heads, tf.shape(xz)[-1]])
        xz = tf.transpose(xz, [1, 2, 0, 3])  # [B, H, Q, K or D]
    return xz if y is None else tf.matmul(x, y, transpose_b=transpose) + xz


def relative_attention(
    q: tf.Tensor,
    k: tf.Tensor,
    v: tf.Tensor,
    key_table: tf.Tensor | None,
    value_table: tf.Tensor | None,
    *,
    bias: tf.Tensor | None = None,
    implementation: str = "auto",
    query_start: int | tf.Tensor | None = None,
    causal: bool = False,
    dropout: Callable[[tf.Tensor], tf.Tensor] | None = None,
    left: int | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Attends by content and by relative position.

    Args:
        q: `[B, H, Q, D]` queries, already scaled by `D**-0.5`.
        k: `[B, H, K, D]` keys.
        v: `[B, H, K, D]` values.
        key_table: None, `[R, D]`, or `[H, R, D]`; row 0 is far to the left.
        value_table: The same for the values.
        bias: None or a float tensor that broadcasts to `[B, H, Q, K]`.
        implementation: "reshape" looks up `[Q, K, D]` vectors; "compact" adds
            to diagonals (`band`); "gather" has the fewest operations; "auto"
            is "reshape" for one query, else "gather" on GPUs, else "compact".
            XLA, and compact queries without a key, always use "reshape".
        query_start: int or scalar tensor: the position of the first query. By
            default the queries are the last keys. In a graph of unknown
            lengths, it promises that each has a key.
        causal: bool. Promises that `bias` leaves keys, and none on the right.
        dropout: None or a function of the weights that multiply the values.
        left: int; k by default.

    Returns:
        A pair: `[B, H, Q, D]`, and the weights `[B, H, Q, K]` before dropout.

    Example:
    >>> x = tf.ones([1, 1, 2, 2])
    >>> values = tf.constant([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])  # k = 1
    >>> relative_attention(x, x, x, None, values)[0].numpy().tolist()
    [[[[2.5, 1.0], [1.5, 1.0]]]]
    """
    checks.choice("implementation", implementation, IMPLEMENTATIONS)
    checks.needs_tensorflow("relative_attention")
    q, k, v, key_table, value_table = (
        None if array is None else tf.convert_to_tensor(array)
        for array in (q, k, v, key_table, value_table)
    )
    _check(q, k, v, key_table, value_table, bias, left)
    sizes = pairs_lib.size(q, 2), pairs_lib.size(k, 2)
    pairs = pairs_lib.Pairs(*sizes, query_start, causal=causal)
    logits = tf.matmul(q, k, transpose_b=True)  # [B, H, Q, K]
    form = pairs, implementation, left
    if key_table is not None:
        (rows,) = _look_up([key_table], *form)
        logits = _add_to_logits(logits, q, rows, pairs)
    if bias is not None:
        bias = pairs_lib.finite(bias, logits.dtype)
    weights = pairs_lib.softmax(logits, bias, v.dtype)  # [B, H, Q, K]
    dropped, summand = weights if dropout is None else dropout(weights), 0.0
    if value_table is not None:
        (rows,) = _look_up([value_table], *form)
        dropped, summand = _weighted_vectors(
            dropped, rows, pairs, sums_to_one=dropout is None
        )
    return tf.matmul(dropped, v) + summand, weights


def _add_to_logits(logits, q, rows, pairs):
    """Adds q[i] . a_key[i, j] to logits `[B, H, Q, K]` (equation 5)."""
    form, left, table, vectors = rows
    if table.shape[-2] == 1 and form != _EXACT:
        table = _without_gradient(table)
        vectors = None if vectors is None else _without_gradient(vectors)
    if form == "compact":
        return band.add_to_logits(logits, q, table, pairs, left)
    if form == "gather":
        return by_distance.add_to_logits(logits, q, table, vectors, pairs, left)
    return logits + relative_attention_inner(q, None, vectors, True)


def _weighted_vectors(weights, rows, pairs, sums_to_one):
    """Returns the weights, and sum_j w[i, j] a_value[i, j] (equation 3)."""
    form, left, table, vectors = rows
    if form == "compact":
        return band.weighted_vectors(weights, table, pairs, sums_to_one, left)
    if form == "gather":
        return weights, by_distance.weighted_vectors(
            weights, table, vectors, pairs, left
        )
    return weights, relative_attention_inner(weights, None, vectors, False)


def _look_up(tables, pairs, implementation, left):
    """Returns `_Rows` for each table `[R, D]` or `[H, R, D]`, of one shape."""
    form = _form(implementation, pairs)
    tables = tf.convert_to_tensor(tables)
    left = tables.shape[-2] // 2 if left is None else left
    if left == 0 and pairs.only_causal:
        tables = tables[..., :1, :]  # All distances are 0, clipped.
    *heads, rows, depth = tables.shape  # [P, .., R, D]
    if form == "compact":
        return [_Rows(form, left, table, None) for table in tf.unstack(tables)]
    by_pair = form != "gather"

    def one_hot():
        ids = pairs.distances() if by_pair else by_distance.distances(pairs)
        ids = tf.clip_by_value(ids, -left, rows - 1 - left) + left
        return tf.one_hot(tf.reshape(ids, [-1]), rows, dtype=tables.dtype)

    # A product with one-hot rows, because the gradient of tf.gather is an
    # IndexedSlices whose duplicate rows Keras' Adam does not sum.
    chosen = pairs.once(("one_hot", form, left, rows, tables.dtype), one_hot)
    vectors = tf.matmul(chosen, tables)  # [P, .., Q * K or S, D]
    if by_pair:
        sizes = [*heads, pairs.queries, pairs.keys, depth]
        vectors = tf.reshape(vectors, sizes)
    both = zip(tf.unstack(tables), tf.unstack(vectors), strict=True)
    return [_Rows(form, left, *one) for one in both]


def tables_of(layer: keras.layers.Layer) -> dict[str, keras.Variable]:
    """Returns the tables of a `TransformerAttention`, by kind: keys, values."""
    return {
        kind: table
        for one in layer.positions
        for kind, table in getattr(one, "tables", {}).items()
    }


def symmetric(table: np.ndarray, left: int) -> np.ndarray:
    """Returns a table `[.., 2k+1, D]`: the shorter side's last row repeats."""
    right = table.shape[-2] - 1 - left
    k = max(left, right)
    paddings = [(0, 0)] * (table.ndim - 2) + [(k - left, k - right), (0, 0)]
    return np.pad(table, paddings, "edge")


def _sees_numbers(one):
    """Returns whether a scheme reads the logits or weights."""
    # The compact form leaves a constant out, which only a softmax ignores.
    return any(
        one.overrides(hook) and getattr(type(one), hook) != getattr(Shaw, hook)
        for hook in ("logits", "output", "attend")
    )


def _form(implementation, pairs):
    """Returns "compact", "gather", "reshape" or "exact"."""
    if implementation == "auto":
        is_one = tf.get_static_value(pairs.queries) == 1
        on_gpu = "gather" if graphs.have_gpu() else "compact"
        implementation = "reshape" if is_one else on_gpu
    if implementation == _EXACT:
        return _EXACT
    # XLA would unroll the diagonals, each to a choice for all pairs.
    if graphs.are_for_xla():
        return "reshape"
    if implementation == "compact" and not _all_have_keys(pairs):
        return "reshape"
    return implementation


def _all_have_keys(pairs):
    """Returns whether each query has the position of a key."""
    queries, keys = (
        None if tf.is_tensor(n) else n for n in (pairs.queries, pairs.keys)
    )
    if 0 in (queries, keys):
        return False
    is_known = None not in (queries, keys)
    if pairs.start is None:  # the queries are the last keys
        return is_known and queries <= keys
    start = tf.get_static_value(pairs.start)
    if not is_known or start is None:
        return True  # as the caller promises
    return 0 <= start <= keys - queries


@tf.custom_gradient
def _without_gradient(table):
    """Returns a table of one row; on the keys, its gradient is exactly 0."""
    # One vector adds the same number to all logits of a query, which leaves
    # the softmax as it is. A computed gradient would consist of rounding
    # errors, from which Adam would make whole steps.
    return tf.identity(table), tf.zeros_like


def _check(q, k, v, key_table, value_table, bias, left):
    """Refuses arguments of `relative_attention` that do not fit."""
    if bias is not None and tf.convert_to_tensor(bias).dtype.is_bool:
        raise errors.UserError(
            "`bias` must be float, 0 where attention is allowed: pairs.to_bias"
            "(mask) of a mask. Received: dtype bool."
        )
    checks.sizes("q", q.shape, ("batch", "heads", "queries", "depth"))
    checks.sizes("k", k.shape, ("batch", q.shape[1], "keys", q.shape[3]))
    checks.sizes("v", v.shape, ("batch", q.shape[1], k.shape[2], "depth"))
    for name, table, depth in (
        ("key_table", key_table, q.shape[3]),
        ("value_table", value_table, v.shape[3]),
    ):
        if table is None:
            continue
        axes = (q.shape[1], "2k+1 rows", depth)[-max(2, table.shape.rank) :]
        checks.sizes(name, table.shape, axes)
        rows = table.shape[-2]
        fits = rows % 2 == 1 if left is None else left in range(rows)
        if not fits:
            raise errors.UserError(
                f"`{name}` must have 2k+1 rows, or `left` of them before the "
                f"one of distance 0. Received: a shape of {table.shape}, "
                f"{left=}."
            )
