"""The whole model against tensor2tensor 1.15.7: its numbers, its variables.

tests/reference/README.md describes the arrays. Their hparams hold dropout
rates, which played no part in any of them.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.decoding import beam_search
from relpos_tf.decoding import search
from relpos_tf.layers import losses
from relpos_tf.training import schedules
from relpos_tf.training import train_step
from tests import t2t_model
from tests import testing
from tests.training import optimizers_test

CASES = testing.t2t_cases("model", "t2t_model.npz")
NO_DROPOUT = dict.fromkeys(
    ("layer_prepostprocess_dropout", "attention_dropout", "relu_dropout"), 0.0
)


def part(data, name):
    """Returns the arrays below a name."""
    prefix = f"{name}/"
    return {
        key.removeprefix(prefix): value
        for key, value in data.items()
        if key.startswith(prefix)
    }


def uncached_search(model, inputs, beam_size, alpha, limit):
    """Beam search that runs the whole decoder for each id."""
    rows = tf.repeat(inputs, beam_size, axis=0)
    memory = model.encode(rows)

    def next_logits(ids):
        # Position t of the targets is scored by the ids before it.
        targets = tf.pad(ids[:, 1:], [[0, 0], [0, 1]])
        features = model.decode(targets, memory, rows)
        return model.softmax_embedding.logits(features)[:, -1]

    ids, scores, states = beam_search.beam_search(
        next_logits,
        tf.zeros([len(inputs)], tf.int32),
        beam_size,
        limit,
        model.hparams.vocab_size,
        alpha,
        stop_early=False,
    )
    return ids[:, :, 1:], scores, states


class TransformerT2tTest(tf.test.TestCase, parameterized.TestCase):
    models = {}  # by the identity of the case's arrays

    def load(self, meta, data):
        """Returns a case's model, which tests share and must not change."""
        if id(data) not in self.models:
            self.models[id(data)] = self.load_anew(meta, data)
        return self.models[id(data)]

    def load_anew(self, meta, data):
        return t2t_model.load(part(data, "var"), meta["hparams"], **NO_DROPOUT)

    def batch(self, data):
        return (
            tf.constant(data[f"in/{name}"], tf.int32)
            for name in ("inputs", "targets")
        )

    @parameterized.named_parameters(*CASES)
    def test_encoder_output_logits_and_loss(self, meta, data):
        model = self.load(meta, data)
        inputs, targets = self.batch(data)
        is_token = data["in/inputs"] != 0
        self.assertFalse(is_token.all())  # some are padding
        logits = model(inputs, targets)
        total, count = losses.padded_cross_entropy(logits, targets, 0.0)
        for found, name in (
            (model.encode(inputs)[is_token], "encoder_output"),
            (logits, "logits_squeezed"),
            (total / count, "loss_eval"),
        ):
            expected = data[f"out/{name}"]
            if name == "encoder_output":
                expected = expected[is_token]
            self.assertAllClose(found, expected, rtol=0, atol=1e-4, msg=name)

    @parameterized.named_parameters(*CASES)
    def test_loss_in_training_and_gradient_of_every_variable(self, meta, data):
        model = self.load(meta, data)
        inputs, targets = self.batch(data)
        variables = {v.path: v.value for v in model.trainable_variables}
        with tf.GradientTape() as tape:
            logits = model(inputs, targets, training=True)
            total, count = losses.padded_cross_entropy(logits, targets, 0.1)
            loss = total / count
        self.assertAllClose(loss, data["out/loss_train_ls0.1"], 0, 1e-4)
        gradients = tape.gradient(loss, variables)
        expected = part(data, "grad")
        names = t2t_model.names(model, expected)
        # Each of our variables has a counterpart, and none is left over.
        self.assertCountEqual(sum(names.values(), []), expected)
        for path, gradient in gradients.items():
            wanted = np.concatenate([expected[name] for name in names[path]])
            self.assertAllClose(
                tf.convert_to_tensor(gradient),
                wanted,
                rtol=0,
                atol=1e-3 * np.abs(wanted).max(),
                msg=path,
            )

    @parameterized.named_parameters(*CASES)
    def test_five_steps_of_adam_from_the_first_and_from_step_8000(
        self, meta, data
    ):
        model = self.load_anew(meta, data)
        rate = schedules.learning_rate(model.hparams)
        start = tf.Variable(0, dtype=tf.int64)
        optimizer = optimizers_test.adam_of(
            lambda step: rate(step + start),
            {v.path: v.value for v in model.trainable_variables},
            optimizer_adam_beta2=meta["hparams"]["optimizer_adam_beta2"],
        )
        spec = dict.fromkeys(
            ("inputs", "targets"), tf.TensorSpec([None, None], tf.int32)
        )
        step = train_step.compile_step(
            tf.distribute.get_strategy(), model, optimizer, spec
        )
        batch = dict(zip(spec, self.batch(data), strict=True))
        weights = model.get_weights()
        for name, number in (("adam", 0), ("adam8000", 8000)):
            self.assertAllClose(
                [float(rate(number + i)) for i in range(5)],
                data[f"out/{name}_lrs"],
                rtol=1e-6,
                atol=1e-12,
            )
            start.assign(number)
            model.set_weights(weights)
            for variable in optimizer.state.values():
                variable.assign(tf.zeros_like(variable))
            found = []
            for _ in range(6):
                result = step(batch)
                found.append(float(result["loss"] / result["target_tokens"]))
            self.assertAllClose(
                found, data[f"out/{name}_losses"], rtol=0, atol=1e-4
            )

    @parameterized.named_parameters(*CASES)
    def test_beam_search_with_a_cache_for_the_best_and_for_four(
        self, meta, data
    ):
        inputs, _ = self.batch(data)
        for n_best in (1, 4):
            ids, scores = search.translate_ids(
                self.load(meta, data),
                inputs,
                beam_size=4,
                alpha=0.6,
                decode_length=meta["decode_length"],
                n_best=n_best,
            )
            name = f"out/decode_beam4_a0.6_top{n_best}"
            expected = data[f"{name}/outputs"].reshape(ids.shape)
            self.assertAllEqual(ids, expected)
            expected = data[f"{name}/scores"].reshape(scores.shape)
            self.assertAllClose(scores, expected, rtol=0, atol=1e-4)

    @parameterized.named_parameters(*CASES)
    def test_beam_search_without_a_cache(self, meta, data):
        inputs, _ = self.batch(data)
        limit = inputs.shape[1] + meta["decode_length"]
        ids, scores, states = uncached_search(
            self.load(meta, data), inputs, 4, 0.6, limit
        )
        self.assertIsNone(states)
        name = "out/decode_slowbeam4_a0.6_top4"
        self.assertAllEqual(ids, data[f"{name}/outputs"])
        self.assertAllClose(scores, data[f"{name}/scores"], rtol=0, atol=1e-4)

    @parameterized.named_parameters(*CASES)
    def test_attention_of_every_decoder_layer_to_the_source(self, meta, data):
        found = self.load(meta, data).attention_weights(*self.batch(data))
        for layer in range(2):
            self.assertAllClose(
                found["cross"][layer],
                data[f"out/attn/decoder/layer_{layer}/encdec_attention"],
                rtol=0,
                atol=1e-5,
            )

    @parameterized.named_parameters(*CASES)
    def test_greedy_search(self, meta, data):
        inputs, _ = self.batch(data)
        expected = np.reshape(data["out/decode_greedy/outputs"], [3, -1])
        limits = tf.fill([3], expected.shape[1])
        ids, _ = search.search(
            self.load(meta, data), inputs, limits, beam_size=1, alpha=0.6
        )
        for found, row in zip(ids[:, 0].numpy(), expected, strict=True):
            # tensor2tensor continues after EOS; those ids do not count.
            ends = np.flatnonzero(row == 1)
            size = ends[0] + 1 if len(ends) else len(row)
            self.assertEqual(found.tolist()[:size], row.tolist()[:size])
