"""Tests of the training step: traces, learning, XLA.

Replicas and batches of an update are in accumulation_test.py.
"""

import keras
import numpy as np
import tensorflow as tf

from relpos_tf import hparam
from relpos_tf.models import transformer
from relpos_tf.training import optimizers
from relpos_tf.training import train_step

SPEC = {
    name: tf.TensorSpec([None, None], tf.int32)
    for name in ("inputs", "targets")
}


def small(**changes):
    return hparam.HParams().replace(
        vocab_size=23,
        hidden_size=8,
        filter_size=12,
        num_heads=2,
        num_hidden_layers=1,
        self_attention_type="dot_product_relative",
        max_relative_position=2,
        layer_prepostprocess_dropout=0.0,
        learning_rate_warmup_steps=100,
        **changes,
    )


def random_batch(random, rows, source, target):
    """Ids without padding, but for the end of every row after the first."""
    batch = {
        "inputs": random.integers(2, 23, (rows, source)),
        "targets": random.integers(2, 23, (rows, target)),
    }
    for ids in batch.values():
        for row in range(1, rows):
            ids[row, ids.shape[1] - row % ids.shape[1] :] = 0
    return {name: ids.astype(np.int32) for name, ids in batch.items()}


def train(strategy, batches, hparams, signature=SPEC):
    """Makes an update for each batch (of every replica in turn)."""
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = transformer.Transformer(hparams)
        optimizer = optimizers.Adam(
            hparams, {v.path: v.value for v in model.trainable_variables}
        )
    dataset = strategy.distribute_datasets_from_function(
        lambda _: tf.data.Dataset.from_generator(
            lambda: iter(batches), output_signature=signature
        )
    )
    step = train_step.compile_step(
        strategy, model, optimizer, dataset.element_spec
    )
    results = [step(batch) for batch in dataset]
    return model, results, step


class TrainStepTest(tf.test.TestCase):
    def test_training_learns_a_batch_by_heart_in_one_trace_for_all_shapes(
        self,
    ):
        random = np.random.default_rng(17)
        batch = random_batch(random, 3, 5, 7)
        others = [random_batch(random, n, n + 1, n + 2) for n in (1, 2, 5)]
        hparams = small(learning_rate_constant=3.0, label_smoothing=0.0)
        _, results, step = train(
            tf.distribute.get_strategy(), [*[batch] * 60, *others], hparams
        )
        per_token = [float(r["loss"] / r["target_tokens"]) for r in results]
        self.assertGreater(per_token[0], 2.0)
        self.assertLess(per_token[59], 0.5)
        self.assertEqual(step.experimental_get_tracing_count(), 1)

    def test_symbol_dropout_leaves_tags_alone(self):
        # Targets of one token: no past token can be dropped.
        signature = SPEC | {"tag_lengths": tf.TensorSpec([None], tf.int32)}
        batch = random_batch(np.random.default_rng(29), 3, 5, 1)
        # An update moves no weight far.
        hparams = small(learning_rate_constant=1e-3).replace(
            self_attention_type="dot_product"
        )

        def losses(rate, *tags):
            _, results, _ = train(
                tf.distribute.get_strategy(),
                [
                    batch | {"tag_lengths": np.full(3, n, np.int32)}
                    for n in tags
                ],
                hparams.replace(symbol_dropout=rate),
                signature,
            )
            return [result["loss"] for result in results]

        (plain,) = losses(0.0, 0)
        tagged, untagged = losses(0.99, 5, 0)
        self.assertAllClose(tagged, plain, rtol=1e-5)
        self.assertNotAllClose(untagged, plain, rtol=1e-3)
