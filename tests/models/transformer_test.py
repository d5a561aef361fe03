"""Tests of the whole model, against NumPy and against itself.

Shapes: B batch, S source length, T target length, V vocabulary, F features,
H heads, R rows of a relative table.
"""

import json

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import hparam
from relpos_tf.layers import dropout
from relpos_tf.models import transformer
from tests import oracles
from tests import testing

V, F, H, R, FILTER, LONGEST = 23, 12, 2, 5, 17, 4
VARIANTS = {
    "per_head": {},
    "shared": {"heads_share_relative_embedding": True},
    "keys_only": {"add_relative_to_values": False},
    "absolute": {"self_attention_type": "dot_product", "pos": "timing"},
    "relative_and_absolute": {"pos": "timing"},
    # Shorter than the targets: the later positions share a vector.
    "learned": {
        "self_attention_type": "dot_product",
        "pos": "emb",
        "max_length": LONGEST,
    },
    "untied": {
        "shared_embedding": False,
        "shared_embedding_and_softmax_weights": False,
    },
    "pre_norm": {
        "layer_preprocess_sequence": "n",
        "layer_postprocess_sequence": "da",
    },
    "reshape": {"relative_attention_implementation": "reshape"},
}
INPUTS = np.array([[5, 7, 11, 3, 1], [13, 2, 1, 0, 0], [22, 1, 0, 0, 0]])
TARGETS = np.array(
    [[4, 9, 1, 0, 0, 0, 0], [6, 6, 8, 20, 3, 9, 1], [17, 2, 12, 5, 1, 0, 0]]
)


def small(name, **changes):
    return testing.HPARAMS.replace(**VARIANTS[name], **changes)


def made(name, layers=2, **kwargs):
    """Returns a model with weights that depend on the variant alone."""
    hparams = small(name, num_hidden_layers=layers)
    return testing.randomize(transformer.Transformer(hparams, **kwargs))


def ids(array):
    return tf.constant(array, tf.int32)


def shifted(targets):
    return np.pad(targets, [(0, 0), (1, 0)])[:, :-1]


def attention_tree(prefix, tables):
    tree = {
        f"{prefix}/{part}/kernel": (F, F)
        for part in ("q", "k", "v", "output_transform")
    }
    for part, shape in tables.items():
        tree[f"{prefix}/relative_positions_{part}"] = shape
    return tree


def expected_tree(tables, norm="after_norm", others=()):
    """Returns names and shapes of one encoder and one decoder layer.

    These names are the format of checkpoints.
    """
    tree = {"target_embedding/embeddings": (V, F), **dict(others)}
    for side, sublayers in (
        ("encoder", ("self_attention", "ffn")),
        ("decoder", ("self_attention", "encdec_attention", "ffn")),
    ):
        layer = f"{side}_layer_0"
        tree |= attention_tree(f"{layer}/self_attention", tables)
        if side == "decoder":
            tree |= attention_tree(f"{layer}/encdec_attention", {})
        tree |= {
            f"{layer}/ffn/conv1/kernel": (F, FILTER),
            f"{layer}/ffn/conv1/bias": (FILTER,),
            f"{layer}/ffn/conv2/kernel": (FILTER, F),
            f"{layer}/ffn/conv2/bias": (F,),
        }
        for name in sublayers:
            tree[f"{layer}/{name}_residual/{norm}/gamma"] = (F,)
            tree[f"{layer}/{name}_residual/{norm}/beta"] = (F,)
    return tree


PER_HEAD = {"keys": (H, R, F // H), "values": (H, R, F // H)}
TREES = {
    "per_head": expected_tree(PER_HEAD),
    "shared": expected_tree({"keys": (R, F // H), "values": (R, F // H)}),
    "keys_only": expected_tree({"keys": (H, R, F // H)}),
    "absolute": expected_tree({}),
    "learned": expected_tree(
        {},
        others={
            "source_positions/embeddings": (LONGEST, F),
            "target_positions/embeddings": (LONGEST, F),
        },
    ),
    "untied": expected_tree(
        PER_HEAD,
        others={
            "source_embedding/embeddings": (V, F),
            "softmax/embeddings": (V, F),
        },
    ),
    "pre_norm": expected_tree(
        PER_HEAD,
        norm="before_norm",
        others={
            f"{side}_norm/{part}": (F,)
            for side in ("encoder", "decoder")
            for part in ("gamma", "beta")
        },
    ),
}


class TransformerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*VARIANTS)
    def test_logits_equal_the_whole_model_in_numpy(self, name):
        model = made(name)
        logits = model(ids(INPUTS), ids(TARGETS))
        expected = oracles.transformer_logits(
            testing.named_weights(model), model.hparams, INPUTS, TARGETS
        )
        self.assertEqual(logits.dtype, tf.float32)
        self.assertAllClose(logits, expected, rtol=1e-4, atol=1e-4)

    @parameterized.parameters(*TREES)
    def test_names_and_shapes_of_the_variables(self, name):
        model = transformer.Transformer(small(name, num_hidden_layers=1))
        self.assertEqual(
            {v.path: tuple(v.shape) for v in model.variables},
            {f"transformer/{k}": shape for k, shape in TREES[name].items()},
        )

    @parameterized.parameters(*VARIANTS)
    def test_every_variable_gets_a_gradient(self, name):
        model = made(name, layers=1)
        with tf.GradientTape() as tape:
            logits = model(ids(INPUTS), ids(TARGETS), training=True)
            loss = tf.reduce_sum(tf.square(logits))
        variables = [v.value for v in model.trainable_variables]
        self.assertLen(variables, len(model.variables))
        for v, gradient in zip(
            model.variables, tape.gradient(loss, variables), strict=True
        ):
            self.assertIsNotNone(gradient, v.path)
            if "relative_positions" in v.path:
                self.assertIsInstance(gradient, tf.Tensor, v.path)
            gradient = tf.convert_to_tensor(gradient)
            self.assertGreater(float(tf.norm(gradient)), 1e-4, v.path)

    @parameterized.parameters("per_head", "learned", "untied")
    def test_copy_from_its_config_is_equal(self, name):
        model = made(name)
        config = json.loads(json.dumps(model.get_config()))
        copy = transformer.Transformer.from_config(config)
        self.assertEqual(copy.hparams, model.hparams)
        copy.set_weights(model.get_weights())
        arguments = ids(INPUTS), ids(TARGETS)
        self.assertAllEqual(copy(*arguments), model(*arguments))

    @parameterized.parameters("per_head", "learned", "pre_norm")
    def test_half_precision_is_close_and_keeps_float32_where_it_counts(
        self, name
    ):
        model = made(name)
        half = made(name, dtype="mixed_bfloat16")
        expected = model(ids(INPUTS), ids(TARGETS))
        logits = half(ids(INPUTS), ids(TARGETS))
        self.assertEqual(logits.dtype, tf.float32)
        self.assertEqual({v.dtype for v in half.variables}, {"float32"})
        self.assertEqual(
            {part.compute_dtype for part in half._flatten_layers()},
            {"bfloat16"},
        )
        self.assertEqual(half.encode(ids(INPUTS)).dtype, tf.bfloat16)
        error = tf.norm(logits - expected) / tf.norm(expected)
        self.assertBetween(float(error), 1e-5, 0.05)

    def test_a_compiled_model_equals_the_eager_one(self):
        model = made("per_head", layers=1)
        expected = model(ids(INPUTS), ids(TARGETS))
        for jit_compile in (False, True):
            compiled = tf.function(
                lambda x, y: model(x, y),
                jit_compile=jit_compile,
                input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2,
            )
            self.assertAllClose(
                compiled(ids(INPUTS), ids(TARGETS)), expected, atol=1e-5
            )

    def test_layers_are_tracked_by_attribute_so_that_checkpoints_see_them(self):
        model = transformer.Transformer(small("pre_norm"))
        for part in model._flatten_layers():
            for name, value in vars(part).items():
                if name.startswith("_") or not isinstance(value, list | dict):
                    continue
                held = value.values() if isinstance(value, dict) else value
                self.assertFalse(
                    any(isinstance(x, keras.layers.Layer) for x in held),
                    f"{part.name}.{name}",
                )
        path = tf.train.Checkpoint(model=model).write(
            self.create_tempdir().full_path + "/checkpoint"
        )
        saved = [
            shape
            for name, shape in tf.train.list_variables(path)
            if name != "_CHECKPOINTABLE_OBJECT_GRAPH"
        ]
        self.assertCountEqual(
            saved,
            [v.shape.as_list() for v in (x.value for x in model.variables)],
        )

    def test_hparams_may_be_the_dict_of_hparams(self):
        hparams = small("shared")
        model = transformer.Transformer(hparams.to_dict())
        self.assertEqual(model.hparams, hparams)
        self.assertIsInstance(model.hparams, hparam.HParams)


class DropoutTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        "layer_prepostprocess_dropout", "attention_dropout", "relu_dropout"
    )
    def test_each_rate_acts_in_training_and_nowhere_else(self, name):
        rates = dict.fromkeys(
            (
                "layer_prepostprocess_dropout",
                "attention_dropout",
                "relu_dropout",
            ),
            0.0,
        )
        plain = transformer.Transformer(small("per_head", **rates))
        rates[name] = 0.5
        model = transformer.Transformer(small("per_head", **rates))
        model.set_weights(plain.get_weights())
        arguments = ids(INPUTS), ids(TARGETS)
        expected = plain(*arguments)
        self.assertAllEqual(plain(*arguments, training=True), expected)
        self.assertAllEqual(model(*arguments), expected)
        results = []
        for seed in (3, 5), (3, 5), (3, 6):
            with dropout.seed_scope(tf.constant(seed)):
                results.append(model(*arguments, training=True))
        self.assertNotAllClose(results[0], expected, atol=0.01)
        self.assertAllEqual(results[0], results[1])
        self.assertNotAllClose(results[0], results[2], atol=0.01)

    def test_embeddings_of_both_sides_are_dropped(self):
        model = transformer.Transformer(small("per_head", num_hidden_layers=1))
        for part in model._flatten_layers():
            if isinstance(part, dropout.Dropout):
                part.rate = 0.0
        inputs, targets = ids(INPUTS), ids(TARGETS)
        memory = model.encode(inputs)
        logits = model.decode(targets, memory, inputs)
        model.embedding_dropout.rate = 0.5
        with dropout.seed_scope(tf.constant([3, 5])):
            self.assertNotAllClose(
                model.encode(inputs, training=True), memory, atol=0.01
            )
            self.assertNotAllClose(
                model.decode(targets, memory, inputs, training=True),
                logits,
                atol=0.01,
            )


class MaskTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("per_head", "absolute", "learned")
    def test_padding_of_the_source_changes_nothing(self, name):
        model = made(name)
        together = model(ids(INPUTS), ids(TARGETS))
        for row, (source, target) in enumerate(
            zip(INPUTS, TARGETS, strict=True)
        ):
            source = source[source != 0]
            target = target[target != 0]
            alone = model(ids([source]), ids([target]))
            self.assertAllClose(
                together[row, : len(target)], alone[0], atol=1e-5
            )

    @parameterized.parameters("per_head", "absolute")
    def test_a_target_is_seen_by_later_positions_only(self, name):
        model = made(name, layers=1)
        logits = model(ids(INPUTS), ids(TARGETS))
        for place in range(TARGETS.shape[1]):
            changed = TARGETS.copy()
            changed[:, place] = (changed[:, place] + 5) % V
            moved = model(ids(INPUTS), ids(changed))
            self.assertAllClose(
                moved[:, : place + 1], logits[:, : place + 1], atol=1e-5
            )
            for later in range(place + 1, TARGETS.shape[1]):
                change = tf.abs(moved[:, later] - logits[:, later])
                self.assertAllGreater(tf.reduce_max(change, -1), 1e-4)

    def test_every_source_token_is_seen_everywhere(self):
        model = made("per_head", layers=1)
        logits = model(ids(INPUTS), ids(TARGETS))
        for row, place in zip(*np.nonzero(INPUTS), strict=True):
            changed = INPUTS.copy()
            changed[row, place] = (changed[row, place] + 3) % 20 + 2
            change = tf.abs(model(ids(changed), ids(TARGETS)) - logits)
            change = tf.reduce_max(change, -1).numpy()  # [B, T]
            self.assertAllGreater(change[row], 1e-4)
            others = np.delete(change, row, axis=0)
            self.assertAllLess(others, 1e-5)


class CacheTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        "per_head", "shared", "absolute", "learned", "pre_norm"
    )
    def test_steps_equal_rows_of_the_full_pass(self, name):
        model = made(name)
        inputs, before = ids(INPUTS), ids(shifted(TARGETS))
        expected = model(inputs, ids(TARGETS))
        memory = model.encode(inputs)
        # Cache that grows or not; end of each step, after a prefix or none.
        for max_length, ends in (
            (None, (1, 2, 3, 4, 5, 6, 7)),
            (None, (3, 4, 5, 7)),
            (11, (1, 2, 3, 5, 6, 7)),
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

    @parameterized.product(name=["per_head", "absolute"], max_length=[None, 11])
    def test_hypotheses_share_a_source_and_equal_each_alone(
        self, name, max_length
    ):
        model = made(name)
        beam = 3
        # Other targets for each hypothesis of each source.
        hypotheses = (
            np.repeat(TARGETS, beam, 0) + np.arange(3 * beam)[:, None]
        ) % V
        expected = model(ids(np.repeat(INPUTS, beam, 0)), ids(hypotheses))
        inputs = ids(INPUTS)
        cache = model.init_cache(
            inputs,
            model.encode(inputs),
            beam_size=beam,
            max_length=max_length,
        )
        before = ids(shifted(hypotheses))
        rows = []
        for start, end in (0, 2), (2, 3), (3, 4), (4, 7):
            logits, cache = model.step(before[:, start:end], cache, start)
            rows.append(logits)
        self.assertAllClose(tf.concat(rows, 1), expected, atol=2e-5)
        # The memory is projected once for each source, not for each row.
        self.assertEqual(cache.memory[0].keys.shape[0], len(INPUTS))

    def test_only_self_attention_follows_the_hypotheses(self):
        model = made("per_head")
        inputs, before = ids(INPUTS), shifted(TARGETS)
        expected = model(inputs, ids(TARGETS))
        cache = model.init_cache(inputs, beam_size=2)
        doubled = np.repeat(before, 2, 0)
        doubled[1::2, 1:] = 7  # the second hypotheses go another way
        _, cache = model.step(ids(doubled[:, :4]), cache, 0)
        # Both hypotheses now continue the first.
        first = [0, 0, 2, 2, 4, 4]
        cache = cache._replace(
            layers=tf.nest.map_structure(
                lambda x: tf.gather(x, first), cache.layers
            )
        )
        logits, _ = model.step(ids(np.repeat(before, 2, 0)[:, 4:]), cache, 4)
        self.assertAllClose(logits, np.repeat(expected[:, 4:], 2, 0), atol=2e-5)


if __name__ == "__main__":
    tf.test.main()
