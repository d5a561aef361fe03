"""Attention weights against loops, their means, and their description."""

import json
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.comparison import attention_maps
from relpos_tf.decoding import engines
from relpos_tf.decoding import loading
from relpos_tf.decoding import model_engine
from relpos_tf.layers.positions import shaw
from relpos_tf.models import transformer
from tests import oracles
from tests import testing
from tests import tiny_run

# Different lengths, so that there is padding on both sides.
INPUTS = np.array([[5, 7, 3, 11, 1], [9, 2, 1, 0, 0]])
TARGETS = np.array([[3, 8, 1, 0], [12, 4, 9, 1]])
TEXT = tiny_run.TEXT
SHORT = "The train leaves."


def weights_by_oracle(model):
    """Returns the weights of every attention, by NumPy loops."""
    found = []

    def recorded(*args, **kwargs):
        output, weights = original(*args, **kwargs)
        found.append(weights)
        return output, weights

    original = oracles.shaw_attention
    with mock.patch.object(oracles, "shaw_attention", recorded):
        oracles.transformer_logits(
            testing.named_weights(model), model.hparams, INPUTS, TARGETS
        )
    layers = model.hparams.encoder_layers
    return {
        "encoder": found[:layers],
        "decoder": found[layers::2],
        "cross": found[layers + 1 :: 2],
    }


class AttentionWeightsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        {},
        {
            "self_attention_type": "dot_product",
            "pos": "timing",
            "layer_preprocess_sequence": "n",
            "layer_postprocess_sequence": "da",
        },
        {
            "heads_share_relative_embedding": True,
            "max_relative_position": 0,
            "localness": "query",
            "attention_window": 2,
            "encoder_attention_direction": "split",
            "num_encoder_layers": 3,
        },
        {
            "max_relative_position_right": 0,
            "decoder_pos": "timing",
            "decoder_self_attention_type": "dot_product_relative_bias",
        },
        {
            "attention_window": 1,
            "attention_window_heads": 3,
            "attention_window_layers": 1,
        },
    )
    def test_weights_are_those_of_the_formula(self, **changes):
        model = transformer.Transformer(testing.HPARAMS.replace(**changes))
        testing.randomize(model)
        expected = weights_by_oracle(model)
        found = attention_maps.weights_of(model, INPUTS, TARGETS)
        self.assertCountEqual(found, expected)
        for name, layers in expected.items():
            self.assertLen(found[name], len(layers))
            for layer, weights in zip(found[name], layers, strict=True):
                # Queries that are padding may have any weights.
                rows = INPUTS if name == "encoder" else TARGETS
                for one, other, ids in zip(layer, weights, rows, strict=True):
                    self.assertAllClose(
                        one[:, ids != 0], other[:, ids != 0], atol=1e-5
                    )

    def test_weights_of_a_model_that_has_diverged_are_refused(self):
        model = transformer.Transformer(testing.HPARAMS)
        kernel = model.encoder_blocks[0].self_attention.q.weights[0]
        kernel.assign(np.nan * kernel.numpy())
        with self.assertRaisesRegex(errors.UserError, "NaN"):
            attention_maps.weights_of(model, INPUTS, TARGETS)


class MeanByDistanceTest(tf.test.TestCase):
    def test_mean_is_over_the_queries_that_have_a_key_there(self):
        # Two sentences of one head; the second has only two positions.
        weights = np.array(
            [
                [[[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.4, 0.4, 0.2]]],
                [[[0.9, 0.1, 7.0], [0.8, 0.2, 7.0], [7.0, 7.0, 7.0]]],
            ]
        )
        found = attention_maps.mean_by_distance(
            weights, [3, 2], [-3, -2, -1, 0, 1, 2]
        )
        expected = [
            [
                np.nan,
                0.4,  # the last to the first, once
                (0.1 + 0.4 + 0.8) / 3,
                (0.5 + 0.6 + 0.2 + 0.9 + 0.2) / 5,
                (0.3 + 0.3 + 0.1) / 3,
                0.2,
            ]
        ]
        self.assertAllClose(found, expected)

    def test_heads_are_apart(self):
        weights = np.zeros([1, 2, 3, 3])
        weights[0, 0] = np.eye(3)
        weights[0, 1] = np.eye(3, k=-1)
        found = attention_maps.mean_by_distance(weights, [3], [-1, 0])
        self.assertAllEqual(found, [[0.0, 1.0], [1.0, 0.0]])


class TablesTest(tf.test.TestCase):
    def test_norms_are_those_of_the_distances_from_minus_k_to_k(self):
        model = transformer.Transformer(
            testing.HPARAMS.replace(
                num_hidden_layers=1,
                max_relative_position=1,
                max_relative_position_right=3,
                decoder_max_relative_position=4,
                add_relative_to_values=False,
            )
        )
        testing.randomize(model)
        found = attention_maps.describe_tables(model)
        self.assertEqual(
            [(one["stack"], one["kind"]) for one in found],
            [("encoder", "keys"), ("decoder", "keys")],
        )
        for one, block, left, right in zip(
            found,
            (model.encoder_blocks[0], model.decoder_blocks[0]),
            (1, 4),
            (3, 3),
            strict=True,
        ):
            tables = shaw.tables_of(block.self_attention)
            table = tables["keys"].numpy()  # [H, R, D]
            k = max(left, right)
            expected = [
                [
                    np.linalg.norm(rows[max(-left, min(right, d)) + left])
                    for d in range(-k, k + 1)
                ]
                for rows in table
            ]
            self.assertAllClose(one["norms"], expected, atol=1e-5)


class DescribeTest(tf.test.TestCase):
    def test_sentence_is_shown_as_the_model_translates_it(self):
        run = tiny_run.path(2)
        lines = ["", TEXT[6], SHORT, TEXT[2]]
        with mock.patch.object(attention_maps, "_SHOWN_LENGTHS", range(5, 20)):
            found = attention_maps.describe(run, lines)
        self.assertEqual(found, json.loads(json.dumps(found, allow_nan=False)))
        self.assertEqual(found["sentences"], 3)
        self.assertEqual(found["source"], SHORT)
        tokens = loading.load_tokenizer(run)
        source, target = (
            [tokens.pieces().index(piece) for piece in found[name]]
            for name in ("source_pieces", "target_pieces")
        )
        self.assertEqual(source, tokens.encode(SHORT))
        self.assertEqual(tokens.decode(target), found["translation"])
        expected = attention_maps.weights_of(
            loading.load_model(run),
            tf.constant([source]),
            tf.constant([target]),
        )
        for name, layers in expected.items():
            for one, other in zip(found[name]["weights"], layers, strict=True):
                self.assertAllClose(one, other[0], atol=1e-4)

    def describe(self, lines, targets):
        """Describes the tiny run, as if it gave these translations."""
        found = [
            engines.Translation(["?"], [0.0], True, [[*target, 0]])
            for target in targets
        ]
        with mock.patch.object(
            model_engine.ModelEngine, "translate", return_value=found
        ):
            return attention_maps.describe(tiny_run.path(2), lines)

    def test_means_are_of_all_sentences_and_padding_is_none(self):
        lines, targets = [SHORT, TEXT[6]], [[7, 9, 1], [5, 3, 8, 4, 1]]
        both, *each = (
            self.describe(lines[some], targets[some])
            for some in (slice(2), slice(1), slice(1, 2))
        )
        most = attention_maps.MOST_DISTANCE
        for name, last in (("encoder", most), ("decoder", 0)):
            distances = both[name]["distances"]
            self.assertEqual(distances, [*range(-most, last + 1)])
            sums, counts = 0.0, 0.0
            for one in each:
                weights = np.array(one[name]["weights"])
                sums += weights.diagonal(-1, 2, 3).sum(-1)
                counts += weights.shape[-1] - 1
            place = distances.index(-1)
            means = np.array(both[name]["by_distance"], float)[:, :, place]
            self.assertAllClose(means, sums / counts, atol=1e-4)
        self.assertIsNone(each[0]["encoder"]["by_distance"][0][0][0])

    def test_long_sentences_are_left_out_unless_there_is_no_other(self):
        lines = [TEXT[6] * 4, SHORT, TEXT[6] * 3]
        with mock.patch.object(attention_maps, "MOST_PIECES", 30):
            found = self.describe(lines, [[4, 1]])
            self.assertEqual((found["source"], found["sentences"]), (SHORT, 1))
            found = self.describe(lines[::2], [[4, 1]])
        self.assertEqual(found["source"], TEXT[6] * 3)

    def test_tables_have_the_lengths_of_the_vectors(self):
        model = loading.load_model(tiny_run.path(2))
        tables = attention_maps.describe_tables(model)
        weights = testing.named_weights(model)
        self.assertLen(tables, 2 * 2 * 2)  # stacks, layers, keys and values
        for table in tables:
            values = weights[
                f"{table['stack']}_layer_{table['layer']}/self_attention/"
                f"relative_positions_{table['kind']}"
            ]  # [H, 2k+1, D]
            expected = [[sum(v**2) ** 0.5 for v in head] for head in values]
            self.assertAllClose(table["norms"], expected, atol=1e-4)

    def test_blank_lines_have_no_attention(self):
        self.assertEqual(
            attention_maps.describe(tiny_run.path(2), [" ", ""]), {}
        )

    def test_folder_without_a_run_is_refused(self):
        with self.assertRaises(errors.UserError):
            attention_maps.describe(self.create_tempdir().full_path, [SHORT])


if __name__ == "__main__":
    tf.test.main()
