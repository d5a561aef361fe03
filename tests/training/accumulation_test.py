"""Tests of updates of several batches and replicas, skipped, and with tags.

All combinations are in tests/campaigns/replicas.py.
"""

import functools
import shutil
import signal
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf.layers import dropout
from relpos_tf.layers import losses
from relpos_tf.models import run_dir
from relpos_tf.models import transformer
from relpos_tf.training import optimizers
from relpos_tf.training import train_step
from relpos_tf.utils import signals
from tests.campaigns import breakable
from tests.campaigns import replicas
from tests.training import tiny_runs

CLIPPED = replicas.HPARAMS.replace(
    clip_grad_norm=0.3, moving_average_decay=0.7, weight_decay=0.2
)
# The layers of a stack share a table.
BIASED = CLIPPED.replace(
    self_attention_type="dot_product_relative_bias",
    num_hidden_layers=2,
    num_decoder_layers=1,
)
# All symbols are cut, so the masks of replicas are alike.
CUT = CLIPPED.replace(symbol_dropout=0.99999, consistency_loss=3.0)
# It packs the gradients by the code that packs them for NCCL.
PACKED = tf.distribute.HierarchicalCopyAllReduce
DROPPED = replicas.HPARAMS.replace(layer_prepostprocess_dropout=0.5)
# With relative positions, a graph takes half as long again to build.
SMALL = replicas.HPARAMS.override(
    "batch_size=128,learning_rate_warmup_steps=20,max_length=32,"
    "self_attention_type=dot_product"
)


def machine(
    count, number, hparams=CLIPPED, kind=breakable.BagOfWords, *args, **options
):
    return _machine(count, number, hparams, kind, *args, **options)


@functools.cache  # Tracing takes seconds.
def _machine(*args, **options):
    return replicas.Machine(*args, **options)


def one_shape(batch):
    """Pads a batch to the longest sentences, for XLA to compile once."""
    return {
        name: np.pad(ids, ((0, 0), (0, 7 - ids.shape[1])))
        for name, ids in batch.items()
    }


class UpdateTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (1, 2, CLIPPED, breakable.BagOfWords),
        (2, 1, replicas.HPARAMS, breakable.BagOfWords),
        (2, 2, CLIPPED, breakable.BagOfWords),
        (2, 1, BIASED, transformer.Transformer),
        (2, 2, CUT, breakable.BagOfWords),
        (2, 1, CLIPPED, breakable.BagOfWords, PACKED),
    )
    def test_ten_updates_equal_those_of_one_batch(
        self, count, number, hparams, model, *reduction
    ):
        reference = machine(1, 1, hparams, model)
        found = machine(count, number, hparams, model, *reduction)
        for kind in replicas.KINDS:
            difference = replicas.compare(found, reference, kind)
            self.assertLess(difference, replicas.TOLERANCE, kind)
        if number == 1:  # Batches of many shapes have one graph.
            self.assertEqual(found.step.experimental_get_tracing_count(), 1)

    @parameterized.parameters(
        (1, 1, CLIPPED),
        (1, 2, CLIPPED),
        (2, 1, replicas.HPARAMS),
        (2, 2, CLIPPED),
    )
    def test_broken_updates_change_nothing(self, count, number, hparams):
        one = machine(count, number, hparams)
        # Every way to break a single part, or several ways and parts in turn.
        stride = one.parts + 1 if one.parts > 1 else 1
        cases = replicas.all_cases(one.parts)[::stride]
        self.assertEmpty(replicas.breaks(one, cases))

    def test_xla_updates_equal_those_of_one_batch_without(self):
        count, number = 2, 2

        def split(pairs, parts):
            parts = replicas.split(pairs[:12], parts, "equal", None)
            return [one_shape(part) for part in parts]

        with mock.patch.object(
            train_step, "_summed_loss", wraps=train_step._summed_loss
        ) as traced:
            compiled = machine(count, number, jit_compile=True)
            parts = [split(p, compiled.parts) for p in replicas.sentences(3)]
            compiled.train(parts)
        states = []
        for one in (machine(1, 1), compiled):
            one.reset()
            one.train([split(p, one.parts) for p in replicas.sentences(3)])
            states.append(one.state())
        self.assertLess(replicas.difference(*states), replicas.TOLERANCE)
        self.assertEqual(traced.call_count, count)  # once for each replica

        # NaN in one part of an update changes no replica.
        parts = split(replicas.sentences(4)[0], compiled.parts)
        parts[1]["inputs"][0, 0] = breakable.BREAKS["gradient nan"]
        (result,) = compiled.train([parts])
        self.assertFalse(result["is_made"])
        self.assertTrue(replicas.same_bits(states[1], compiled.state()))

    def test_random_draws_differ_by_replica_batch_step_and_seed(self):
        # Only one part has tokens: the same loss, but for masks.
        full = replicas.batch(replicas.sentences(8)[0])
        parts = np.full([4, 4], replicas.batch([])).tolist()
        for i in range(4):
            parts[i][i] = full

        def losses(one, updates):
            one.reset()
            return [float(result["loss"]) for result in one.train(updates)]

        two = machine(2, 2, DROPPED)
        found = [losses(two, [update])[0] for update in parts]
        # No weight moves without a token: the second step starts like the
        # first.
        nothing = [replicas.batch([])] * 4
        found.append(losses(two, [nothing, parts[0]])[1])
        other = machine(1, 1, DROPPED, random_seed=2)
        found += losses(other, [[full]])
        self.assertGreater(np.diff(np.sort(found)).min(), 1e-3, found)
        self.assertEqual(losses(two, [parts[2]]), [found[2]])


class SymbolDropoutTest(tf.test.TestCase):
    def test_the_divergence_from_cut_symbols_is_added_to_the_loss(self):
        # All symbols are cut but those of tags.
        hparams = replicas.HPARAMS.replace(
            symbol_dropout=0.99999, consistency_loss=3.0, label_smoothing=0.2
        )
        keras.utils.set_random_seed(3)
        model = transformer.Transformer(hparams)
        table = model.target_embedding.embeddings
        zero = 21  # an id of no vector, as those that are cut
        table.assign(tf.where(np.arange(23)[:, None] == zero, 0.0, table.value))
        whole = [[3, 5, 7, 9], [4, 2, 0, 0]], [[8, 7], [6, 0]]
        cut = [[3, zero, zero, zero], [zero, zero, 0, 0]], [[zero, 7], [6, 0]]
        inputs, targets = map(tf.constant, whole)
        p, q = model(inputs, targets), model(*map(tf.constant, cut))
        divergence = losses.padded_divergence(p, q, targets)
        self.assertGreater(float(divergence), 0.1)
        expected = losses.padded_cross_entropy(p, targets, 0.2)[0]
        batch = {"inputs": inputs, "targets": targets, "tag_lengths": [1, 0]}
        with dropout.seed_scope(tf.constant([1, 2])):
            found = train_step._summed_loss(model, batch)
        self.assertAllClose(
            found, expected + 3 * divergence, rtol=1e-5, atol=1e-5
        )

    def test_tags_are_never_dropped(self):
        # Targets of one token: no past token can be dropped.
        ids = {"inputs": [[3, 5, 7, 9], [4, 2, 0, 0]], "targets": [[8], [6]]}

        def update_losses(rate, *tags):
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

        (plain,) = update_losses(0.0, 0)
        tagged, untagged = update_losses(0.99, 4, 0)
        self.assertAllClose(tagged, plain, rtol=1e-5, atol=1e-6)
        self.assertNotAllClose(untagged, plain, rtol=1e-3)


class BreaksAt(breakable.Fragile):
    """Breaks the batches with some numbers, counted from 1."""

    def __init__(self, model, numbers):
        super().__init__(model)
        self._numbers = tf.constant(list(numbers), tf.int64)
        self._count = tf.Variable(0, dtype=tf.int64, trainable=False)

    def features(self, inputs, targets, **options):
        is_bad = tf.reduce_any(self._count.assign_add(1) == self._numbers)
        x = self._model.features(inputs, targets, **options)
        return x * tf.where(is_bad, np.nan, 1.0)


class TrainerTest(tiny_runs.TestCase):
    hparams = SMALL
    config = {"local_eval_frequency": 2, "log_step_count_steps": 1}

    @classmethod
    def trainer(cls, name, steps, hparams="", breaks=(), **config):
        made = super().trainer(name, steps, hparams, **config)
        if breaks:
            made.model = BreaksAt(made.model, breaks)
        return made

    def test_a_resumed_run_equals_one_that_never_stopped(self):
        changes = (
            "optimizer_multistep_accumulate_steps=3,max_position_shift=500,"
            "attention_dropout=0.3,symbol_dropout=0.1,moving_average_decay=0.7"
        )
        self.trainer("whole", 4, changes).train()
        self.assertEqual(self.values_in("whole/ckpt-2")["training/position"], 6)
        shutil.copytree(
            self.folder / "whole",
            self.folder / "resumed",
            ignore=shutil.ignore_patterns("ckpt-4*"),
        )
        self.trainer("resumed", 4, changes).train()
        expected = self.values_in("whole/ckpt-4")
        self.assertEqual(expected["training/position"], 12)
        self.assertEqual(expected["optimizer/step"], 4)
        self.assert_same_values("whole/ckpt-4", "resumed/ckpt-4")

    def test_an_update_that_a_signal_interrupts_is_saved_after_the_first(self):
        compile_step = train_step.compile_step
        tokens = []

        def compile_interrupted(*args, **kwargs):
            step_fn = compile_step(*args, **kwargs)

            def step(batch):
                result = step_fn(batch)
                tokens.append(float(result["target_tokens"]))
                if len(tokens) == number:
                    signal.raise_signal(signal.SIGTERM)
                return result

            return step

        for number in (1, 3):
            tokens.clear()
            name = f"interrupted {number}"
            trainer = self.trainer(
                name, 9, local_eval_frequency=9, log_step_count_steps=9
            )
            with signals.caught(), self.assertRaises(KeyboardInterrupt):
                with mock.patch.object(
                    train_step, "compile_step", compile_interrupted
                ):
                    trainer.train()
        # The first update, which builds the graph, is lost with its sums.
        self.assertEmpty(run_dir.all_steps(self.folder / "interrupted 1"))
        saved = self.values_in(f"{name}/ckpt-{number}")
        self.assertEqual(saved["training/position"], number)
        self.assertEqual(saved["training/unreported"][1], sum(tokens))

    def test_skipped_updates_are_counted_and_ten_in_a_row_end_the_run(self):
        breaks = [2, *range(4, 13), *range(14, 1000)]
        trainer = self.trainer("breaks", 1000, breaks=breaks)
        with self.assertRaisesRegex(
            errors.UserError,
            "10 updates in a row, after step 3. .*learning_rate_constant"
            ".*clip_grad_norm.*data",
        ):
            trainer.train()
        events = run_dir.RunDir(self.folder / "breaks").read_metrics()
        self.assertEqual(
            [(event["step"], event["skipped_steps"]) for event in events],
            [(1, 0), (2, 1), (3, 9)],
        )
        for event in events:
            self.assertTrue(0.0 < event["loss"] < 10.0, event)
        self.assertEqual(
            [path.name for path in (self.folder / "breaks").glob("*.npz")],
            ["ckpt-2.npz"],
        )
        # The batch of the second update was used up.
        self.assertEqual(
            self.values_in("breaks/ckpt-2")["training/position"], 3
        )
        self.assertEqual(self.values_in("breaks/ckpt-2")["optimizer/step"], 2)

    def test_infinite_weights_are_not_saved(self):
        # Adam multiplies the rate by 1.4 first, which gives infinity. HParams
        # refuse such a rate.
        with mock.patch.object(fields, "check"):
            trainer = self.trainer(
                "broken",
                1,
                "learning_rate_constant=3e38,learning_rate_schedule=constant",
            )
        with self.assertRaisesRegex(errors.UserError, "infinite at step"):
            trainer.train()
        self.assertEmpty(list((self.folder / "broken").glob("ckpt-*")))
