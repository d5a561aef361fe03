"""Tests of the training step with tags of languages.

Other updates are in accumulation_test.py.
"""

import keras
import tensorflow as tf

from relpos_tf.models import transformer
from relpos_tf.training import optimizers
from relpos_tf.training import train_step
from tests.campaigns import replicas


class TagsTest(tf.test.TestCase):
    def test_symbol_dropout_leaves_tags_alone(self):
        # Targets of one token: no past token can be dropped.
        ids = {"inputs": [[3, 5, 7, 9], [4, 2, 0, 0]], "targets": [[8], [6]]}

        def losses(rate, *tags):
            """Returns the loss of an update for each length of all tags."""
            # An update moves no weight far.
            hparams = replicas.HPARAMS.replace(
                self_attention_type="dot_product",
                symbol_dropout=rate,
                learning_rate_constant=1e-3,
            )
            keras.utils.set_random_seed(7)
            model = transformer.Transformer(hparams)
            optimizer = optimizers.Adam(
                hparams, {v.path: v.value for v in model.trainable_variables}
            )
            batches = [
                {
                    name: tf.constant(value)
                    for name, value in (ids | {"tag_lengths": [n, n]}).items()
                }
                for n in tags
            ]
            step = train_step.compile_step(
                tf.distribute.get_strategy(),
                model,
                optimizer,
                tf.nest.map_structure(tf.TensorSpec.from_tensor, batches[0]),
            )
            return [step(batch)["loss"] for batch in batches]

        (plain,) = losses(0.0, 0)
        tagged, untagged = losses(0.99, 4, 0)
        self.assertAllClose(tagged, plain, rtol=1e-5, atol=1e-6)
        self.assertNotAllClose(untagged, plain, rtol=1e-3)
