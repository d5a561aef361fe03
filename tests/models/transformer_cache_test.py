"""Tests of the masks of the model and of decoding step by step.

Shapes: B batch, T target length.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.models import example


def repeated(cache, beam):
    """Returns a cache for some hypotheses of each source."""
    return cache._replace(
        layers=tf.nest.map_structure(
            lambda x: tf.repeat(x, beam, axis=0), cache.layers
        )
    )


class MaskTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        "per_head", "absolute", "learned", "localness_query", "additive"
    )
    def test_padding_of_the_source_changes_nothing(self, name):
        model, together = example.made(name), example.logits(name)
        for row, (source, target) in enumerate(
            zip(example.INPUTS, example.TARGETS, strict=True)
        ):
            source = source[source != 0]
            target = target[target != 0]
            alone = model(example.ids([source]), example.ids([target]))
            self.assertAllClose(
                together[row, : len(target)], alone[0], atol=1e-5
            )

    @parameterized.parameters("per_head", "absolute")
    def test_a_target_is_seen_by_later_positions_only(self, name):
        model = example.made(name, layers=1)
        logits = example.logits(name, layers=1)
        for place in range(example.TARGETS.shape[1]):
            changed = example.TARGETS.copy()
            changed[:, place] = (changed[:, place] + 5) % example.V
            moved = model(example.ids(example.INPUTS), example.ids(changed))
            self.assertAllClose(
                moved[:, : place + 1], logits[:, : place + 1], atol=1e-5
            )
            for later in range(place + 1, example.TARGETS.shape[1]):
                change = tf.abs(moved[:, later] - logits[:, later])
                self.assertAllGreater(tf.reduce_max(change, -1), 1e-4)

    def test_every_source_token_is_seen_everywhere(self):
        model = example.made("per_head", layers=1)
        logits = example.logits("per_head", layers=1)
        for row, place in zip(*np.nonzero(example.INPUTS), strict=True):
            changed = example.INPUTS.copy()
            changed[row, place] = (changed[row, place] + 3) % 20 + 2
            change = tf.abs(
                model(example.ids(changed), example.ids(example.TARGETS))
                - logits
            )
            change = tf.reduce_max(change, -1).numpy()  # [B, T]
            self.assertAllGreater(change[row], 1e-4)
            others = np.delete(change, row, axis=0)
            self.assertAllLess(others, 1e-5)


class CacheTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        "per_head",
        "shared",
        "absolute",
        "learned",
        "pre_norm",
        "localness_layer",
        "t5_bias",
        "k_apart",
        "relative_decoder",
        "additive",
    )
    def test_steps_equal_rows_of_the_full_pass(self, name):
        model = example.made(name)
        inputs, before = (
            example.ids(example.INPUTS),
            example.ids(example.shifted(example.TARGETS)),
        )
        expected = example.logits(name)
        memory = model.encode(inputs)
        # Cache that grows or not; end of each step, after a prefix or none.
        for max_length, ends in (
            (None, (1, 2, 5, 6, 7)),
            (11, (1, 2, 4, 7)),
            (7, (3, 4, 7)),
        ):
            cache = model.init_cache(inputs, memory, max_length=max_length)
            rows, start = [], 0
            for end in ends:
                logits, cache = model.step(before[:, start:end], cache, start)
                rows.append(logits)
                start = end
            self.assertAllClose(
                tf.concat(rows, 1), expected, atol=2e-5, msg=f"{max_length}"
            )

    @parameterized.parameters(
        ("per_head", None),
        ("per_head", 11),
        ("absolute", None),
        ("absolute", 11),
        ("localness_query", 11),
    )
    def test_hypotheses_share_a_source_and_equal_each_alone(
        self, name, max_length
    ):
        model = example.made(name)
        beam = 3
        # Each hypothesis has its own targets.
        hypotheses = (
            np.repeat(example.TARGETS, beam, 0) + np.arange(3 * beam)[:, None]
        ) % example.V
        expected = model(
            example.ids(np.repeat(example.INPUTS, beam, 0)),
            example.ids(hypotheses),
        )
        inputs = example.ids(example.INPUTS)
        cache = repeated(model.init_cache(inputs, max_length=max_length), beam)
        before = example.ids(example.shifted(hypotheses))
        rows = []
        for start, end in (0, 2), (2, 3), (3, 4), (4, 7):
            logits, cache = model.step(before[:, start:end], cache, start)
            rows.append(logits)
        self.assertAllClose(tf.concat(rows, 1), expected, atol=2e-5)
        # The memory is projected once for each source, not for each row.
        self.assertEqual(cache.memory[0].keys.shape[0], len(example.INPUTS))
