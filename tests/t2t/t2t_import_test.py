"""Model directories of tensor2tensor become runs, or are refused by name.

TensorFlow 1's saver writes the directories. The expected outputs come from
tests/t2t_oracle.py, in NumPy on tensor2tensor's names, and from tensor2tensor.
"""

import atexit
import functools
import json
import pathlib
import shutil
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import relpos_tf
from relpos_tf import errors
from relpos_tf.t2t import t2t_import
from tests import folders
from tests import t2t_checkpoint
from tests import t2t_oracle
from tests import testing

VOCAB = 47
# Of one layer, unless they say so.
KINDS = {
    "relative": {"num_hidden_layers": 2},
    "k_1_one_head": {"max_relative_position": 1, "num_heads": 1},
    "absolute": {
        "self_attention_type": "dot_product",
        "max_relative_position": 0,
        "pos": "timing",
    },
    "learned_positions": {"pos": "emb", "max_length": 19},
    "post_norm": {
        "layer_preprocess_sequence": "none",
        "layer_postprocess_sequence": "dan",
    },
    "norm_before_and_after": {"layer_postprocess_sequence": "dan"},
    "untied": {"shared_embedding_and_softmax_weights": False},
    "untied_softmax": {
        "shared_embedding": True,
        "shared_embedding_and_softmax_weights": False,
    },
    "target_space": {"use_target_space_embedding": True},
    "one_shard": {"symbol_modality_num_shards": 1},
    "deep_encoder": {"num_encoder_layers": 3, "num_decoder_layers": 1},
    "other_epsilon": {"norm_epsilon": 1e-2},
}


def ids(seed, *shape):
    """Returns ids with padding at the ends of all rows but the first."""
    found = np.random.default_rng(seed).integers(1, VOCAB, shape)
    for row in range(1, shape[0]):
        found[row, shape[1] - row :] = 0
    return found


@functools.cache
def written(overrides):
    """Writes a model directory, once in a process."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="t2t."))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    hparams = t2t_checkpoint.hparams_dict(**dict(overrides))
    variables = t2t_checkpoint.random_variables(hparams, VOCAB, 5)
    t2t_checkpoint.write(folder, variables, hparams, extra=False)
    return folder, variables, hparams


class ImportTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.t2t_dir = self.folder / "t2t"
        self.run_dir = self.folder / "run"

    def write(self, **overrides):
        """Writes a model directory; returns its variables and hparams."""
        folder, variables, hparams = written(tuple(overrides.items()))
        shutil.copytree(folder, self.t2t_dir)
        return variables, hparams

    def write_changed(self, change, **more):
        """Writes a model directory whose variables `change` returns."""
        _, variables, hparams = written(())
        t2t_checkpoint.write(
            self.t2t_dir, change(variables), hparams, **{"extra": False} | more
        )
        return variables

    def run_import(self, **arguments):
        return t2t_import.import_run(self.t2t_dir, self.run_dir, **arguments)

    def change_hparams(self, **changes):
        path = self.t2t_dir / "hparams.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    @parameterized.named_parameters(KINDS.items())
    def test_model_computes_what_tensor2tensor_does(self, overrides):
        variables, hparams = self.write(**{"num_hidden_layers": 1} | overrides)
        done = self.run_import()
        # Every variable of the model once, everything else ignored.
        read = [name for names in done.used.values() for name in names]
        self.assertCountEqual(read, variables)
        self.assertEqual(done.ignored, [])
        inputs, targets = ids(1, 3, 7), ids(2, 3, 11)
        logits = relpos_tf.load_model(self.run_dir)(
            tf.constant(inputs), tf.constant(targets)
        )
        expected = t2t_oracle.logits(variables, hparams, inputs, targets)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)

    def test_numbers_of_tensor2tensor_itself(self):
        for case, meta, data in testing.t2t_cases("model", "t2t_model.npz"):
            with self.subTest(case):
                variables = {
                    name.removeprefix("var/"): value
                    for name, value in data.items()
                    if name.startswith("var/")
                }
                t2t_checkpoint.write(
                    self.t2t_dir, variables, meta["hparams"], extra=False
                )
                self.run_import()
                model = relpos_tf.load_model(self.run_dir)
                # tests/models has the searches of these models.
                np.testing.assert_allclose(
                    model(data["in/inputs"], data["in/targets"]),
                    data["out/logits_squeezed"],
                    rtol=0,
                    atol=1e-4,
                )
                shutil.rmtree(self.t2t_dir)

    def test_target_space_is_the_row_that_was_named(self):
        variables, hparams = self.write(use_target_space_embedding=True)
        self.run_import(target_space_id=9)
        inputs, targets = ids(1, 2, 5), ids(2, 2, 5)
        logits = relpos_tf.load_model(self.run_dir)(
            tf.constant(inputs), tf.constant(targets)
        )
        expected = t2t_oracle.logits(
            variables, hparams, inputs, targets, target_space_id=9
        )
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)

    def test_checkpoint_is_the_newest_or_the_one_named(self):
        hparams = t2t_checkpoint.hparams_dict(num_hidden_layers=1)
        for step, seed in ((900, 1), (1000, 2), (20, 3)):
            variables = t2t_checkpoint.random_variables(hparams, VOCAB, seed)
            t2t_checkpoint.write(
                self.t2t_dir, variables, hparams, step=step, extra=False
            )
        self.run_import()
        self.assertTrue((self.run_dir / "ckpt-1000.npz").exists())
        # As `t2t-avg-all` leaves one: in a folder without hparams.
        average = self.t2t_dir / "avg"
        average.mkdir()
        for path in self.t2t_dir.glob("model.ckpt-20.*"):
            shutil.copy(path, average)
        for path in (
            self.t2t_dir / "model.ckpt-20",
            self.t2t_dir / "model.ckpt-20.index",
            "model.ckpt-20",
            "avg/model.ckpt-20",
            average,
        ):
            self.run_import(checkpoint=str(path))
            self.assertEqual(
                [path.name for path in self.run_dir.glob("ckpt-*")],
                ["ckpt-20.npz"],
            )

    def test_checkpoint_of_any_name_is_found_by_its_state_file(self):
        variables, hparams = self.write()
        for path in self.t2t_dir.glob("model.ckpt-250000*"):
            path.rename(str(path).replace("model.ckpt-250000", "best"))
        (self.t2t_dir / "checkpoint").write_text(
            'model_checkpoint_path: "best"\n'
        )
        done = self.run_import()
        self.assertEqual(done.checkpoint, str(self.t2t_dir / "best"))
        self.assertTrue((self.run_dir / "ckpt-0.npz").exists())

    def test_record_says_what_came_from_where(self):
        variables = self.write_changed(lambda variables: variables, extra=True)
        done = self.run_import()
        record = json.loads((self.run_dir / t2t_import.RECORD).read_text())
        self.assertEqual(record["used"], done.used)
        self.assertCountEqual(
            record["ignored"], t2t_checkpoint.training_variables(variables, 1)
        )
        self.assertEqual(record["step"], 250000)

    def test_slots_inside_the_scope_of_the_model_are_ignored(self):
        variables = self.write_changed(
            lambda variables: (
                variables
                | {f"{name}/Adam": v + 1.0 for name, v in variables.items()}
            )
        )
        ignored = self.run_import().ignored
        self.assertEqual(ignored, sorted(f"{name}/Adam" for name in variables))

    def test_scope_may_have_any_name(self):
        variables = self.write_changed(
            lambda variables: {
                name.replace("transformer/", "my_model/", 1): value
                for name, value in variables.items()
            }
        )
        used = [name for x in self.run_import().used.values() for name in x]
        self.assertLen(used, len(variables))

    def assert_refused(self, *texts, **arguments):
        """Checks the message, and that nothing was written."""
        with self.assertRaises(errors.UserError) as caught:
            self.run_import(**arguments)
        for text in texts:
            self.assertIn(text, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))
        self.assertEqual(
            {path.name for path in self.folder.iterdir()} - {"t2t"}, set()
        )

    @parameterized.parameters(
        ("self_attention_type", "dot_product_relative_v2"),
        ("ffn_layer", "conv_relu_conv"),
        ("pos", "timing_from_features"),
        ("norm_type", "batch"),
        ("attention_key_channels", 64),
        ("unidirectional_encoder", True),
    )
    def test_refuses_a_model_of_another_kind(self, name, value):
        self.write()
        self.change_hparams(**{name: value})
        self.assert_refused(f"This model has {name}={value}, ")

    @parameterized.product(
        name=("hidden_size", "attention_dropout", "vocab_divisor"),
        value=("x", [], 1e999, 10**999),
    )
    def test_refuses_what_is_no_number_where_there_must_be_one(
        self, name, value
    ):
        self.write()
        self.change_hparams(**{name: value})
        self.assert_refused(f"`{name} in {self.t2t_dir}/hparams.json` must be")

    @parameterized.named_parameters(
        (
            "k",
            {"max_relative_position": 5},
            "relative_positions_keys/embeddings has shape [9, 8], and by "
            "hparams.json [11, 8]",
        ),
        ("layers", {"num_hidden_layers": 1}, "has no place in this model"),
        ("more_layers", {"num_hidden_layers": 3}, "is missing"),
        ("heads", {"num_heads": 5}, "multiple of num_heads"),
        ("null", {"num_heads": None}, "num_heads in"),
        ("length", {"max_length": "x"}, "`max_length` must be"),
        (
            "attention",
            {"self_attention_type": "dot_product"},
            "relative_positions_keys/embeddings has no place",
        ),
    )
    def test_refuses_hparams_of_another_model_by(self, changes, text):
        self.write()
        self.change_hparams(**changes)
        self.assert_refused(text)

    @parameterized.named_parameters(
        (
            "of_other_attention_that_hparams_do_not_tell",
            lambda variables: {
                name.replace(
                    "dot_product_attention_relative/relative_positions_keys/"
                    "embeddings",
                    "key_embeddings",
                ): value
                for name, value in variables.items()
            },
            ("does not fit", "keys/embeddings is missing"),
        ),
        (
            "without_a_shard",
            lambda variables: {
                name: value
                for name, value in variables.items()
                if not name.endswith("shared/weights_3")
            },
            ("weights_3 is missing",),
        ),
        (
            "of_two_vocabularies",
            lambda variables: (
                variables
                | {
                    f"transformer/symbol_modality_90_32/shared/weights_{i}": (
                        np.zeros([6, 32], np.float32)
                    )
                    for i in range(16)
                }
            ),
            (
                "one vocabulary for source and target",
                f"symbol_modality_{VOCAB}_32, symbol_modality_90_32",
            ),
        ),
    )
    def test_refuses_variables(self, change, texts):
        self.write_changed(change)
        self.assert_refused(*texts)

    def test_refuses_a_folder_without(self):
        self.t2t_dir.mkdir()
        self.assert_refused("with hparams.json", str(self.t2t_dir))
        (self.t2t_dir / "hparams.json").write_text('{"hidden_size": 8}')
        self.assert_refused("model.ckpt-STEP.index")
        (self.t2t_dir / "hparams.json").write_text("{")
        self.assert_refused("hparams.json is not JSON")
        (self.t2t_dir / "hparams.json").write_text("[]")
        self.assert_refused("something else")

    @parameterized.parameters("*.index", "*.data-*")
    def test_refuses_a_damaged_checkpoint(self, pattern):
        self.write()
        (path,) = self.t2t_dir.glob(pattern)
        path.write_bytes(path.read_bytes()[:100])
        self.assert_refused("t2t/model.ckpt-250000")

    def test_refuses_a_checkpoint_of_something_else(self):
        self.write()
        t2t_checkpoint.write(
            self.t2t_dir,
            {"resnet/conv/kernel": np.ones([2], np.float32)},
            t2t_checkpoint.hparams_dict(),
            step=300000,
            extra=False,
        )
        self.assert_refused("one Transformer", "resnet/conv/kernel")

    def test_never_replaces_what_is_not_an_import(self):
        self.write()
        self.run_dir.mkdir()
        (self.run_dir / "thesis.tex").write_text("important")
        with self.assertRaisesRegex(errors.UserError, "something else"):
            self.run_import()
        (self.run_dir / "thesis.tex").unlink()
        self.run_import()
        self.run_import()  # and again
        (self.run_dir / "metrics.jsonl").touch()  # It was trained.
        with self.assertRaisesRegex(errors.UserError, "metrics.jsonl"):
            self.run_import()

    def test_names_that_tensorflow_takes_for_patterns_are_refused(self):
        source, _, _ = written(())
        odd = pathlib.Path(shutil.copytree(source, self.folder / "t2t[1]"))
        for pair in ((source, self.folder / "run[1]"), (odd, self.run_dir)):
            with self.assertRaisesRegex(errors.UserError, r"\[1\].* Rename it"):
                t2t_import.import_run(*pair)
