"""Scores of models: the decoder's translations, computed once."""

import functools
import json
import pathlib
import shutil
from unittest import mock

import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.comparison import attention_maps
from relpos_tf.comparison import child_process
from relpos_tf.comparison import collection
from relpos_tf.comparison import runs
from relpos_tf.comparison import score_cache
from relpos_tf.decoding import model_engine
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.models import checkpoints
from relpos_tf.problems import problem as problem_lib
from relpos_tf.problems import test_sets
from relpos_tf.training import evaluation
from relpos_tf.utils import slots as slots_lib
from tests import tiny_run
from tests.comparison import examples


class ScoresTestCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path) / "all"
        examples.copy(self.folder)
        self.run = runs.Run("a", 1, self.folder / "a-seed1")
        self.problem = test_sets.problem_of(self.run.files)
        self.true_child = child_process.Child
        patch = examples.in_this_process()
        self.process = patch.start()
        self.addCleanup(patch.stop)
        patch = mock.patch.object(
            model_engine.ModelEngine, "translate", examples.quick_search
        )
        patch.start()
        self.addCleanup(patch.stop)

    def open_set(self, use_test_set=True):
        (found,) = collection.open_test_sets(
            str(self.folder / "data"), self.problem, use_test_set
        )
        return found

    def score(self, attention_sources=(), checkpoint="", further=()):
        scoring = score_cache.Scoring(
            self.run,
            checkpoint or runs.final_checkpoint(self.run),
            self.open_set(),
            self.folder / "out",
            attention_sources,
            further,
        )
        score_cache.score([scoring], slots_lib.divide(1))
        return scoring.result()


class TrueScoresTest(ScoresTestCase):
    def test_translations_are_the_decoders_and_the_loss_is_of_all_tokens(self):
        result = self.score()
        translator = translator_lib.Translator.load(self.run.path)
        lines = [source for source, _ in examples.TEST]
        expected = translator.translate(lines)
        self.assertEqual(result.translations, expected)
        self.assertEqual(expected[-1], "")
        self.assertEndsWith(expected[0], " (3, 0.6, 7)")  # of the tiny run
        self.assertGreater(len(set(expected)), 3)
        made = self.folder / "out" / "translations" / "a-seed1.txt"
        self.assertEqual(
            made.read_text("utf-8"), "".join(f"{x}\n" for x in expected)
        )
        # Pair by pair, without batches or padding.
        loss = count = 0.0
        tokenizer, model = translator.engine.tokenizer, translator.engine.model
        for pair in examples.TEST:
            source, target = (tokenizer.encode(text) for text in pair)
            logits = model(tf.constant([source]), tf.constant([target]))
            chosen = tf.nn.log_softmax(logits[0]).numpy()
            loss -= sum(row[i] for row, i in zip(chosen, target, strict=True))
            count += len(target)
        self.assertAlmostEqual(result.record["loss"], loss / count, places=4)
        self.assertEqual(
            result.record["source_lengths"],
            [len(tokenizer.encode(line)) for line in lines],
        )
        self.assertEqual(
            result.record["parameters"],
            sum(v.numpy().size for v in model.variables),
        )


class ScoresTest(ScoresTestCase):
    def setUp(self):
        super().setUp()
        patch = mock.patch.object(
            evaluation, "teacher_forced", examples.quick_loss
        )
        patch.start()
        self.addCleanup(patch.stop)

    def test_dev_split_on_demand(self):
        test_set = self.open_set(use_test_set=False)
        self.assertEqual(test_set.name, "dev")
        self.assertEqual(
            [test_set.sources, test_set.references],
            list(map(list, zip(*examples.PAIRS[1:], strict=True))),
        )
        self.assertEqual(self.open_set().name, "test")

    def test_scores_are_computed_again_only_after_a_change(self):
        first = self.score()
        self.assertEqual(self.score(), first)
        self.assertEqual(self.process.call_count, 1)
        # Another model.
        run = examples.add_run(self.folder, "b-seed1")
        shutil.copytree(run, self.run.path, dirs_exist_ok=True)
        second = self.score()
        self.assertEqual(self.process.call_count, 2)
        self.assertNotEqual(second.translations, first.translations)
        # Translations that were edited.
        path = self.folder / "out" / "translations" / "a-seed1.txt"
        path.write_text("else\n")
        self.assertEqual(self.score().translations, second.translations)
        path.unlink()
        self.assertEqual(self.score().translations, second.translations)
        # A file cut short.
        path = self.folder / "out" / "scores" / "a-seed1.json"
        path.write_text(path.read_text()[:-9])
        self.assertEqual(self.score().translations, second.translations)
        self.assertEqual(self.process.call_count, 5)

    def test_further_sets_are_scored_in_the_same_process_once(self):
        dev = self.open_set(use_test_set=False)._replace(name="test_2")

        score = functools.partial(self.score, further=[dev])
        # A cache of the first set alone stays valid.
        alone = self.score()
        result = score()
        self.assertEqual(self.process.call_count, 2)
        self.assertEqual(result._replace(further={}), alone)
        expected = translator_lib.Translator.load(self.run.path).translate(
            [source for source, _ in examples.PAIRS[1:]]
        )
        self.assertEqual(result.further, {"test_2": expected})
        self.assertNotEqual(expected, alone.translations[: len(expected)])
        self.assertEqual(score(), result)
        self.assertEqual(self.process.call_count, 2)
        out = self.folder / "out"
        (out / "translations" / "test_2" / "a-seed1.txt").write_text("else\n")
        self.assertEqual(score(), result)
        self.assertEqual(self.process.call_count, 3)
        shutil.rmtree(out)
        anew = score()
        self.assertEqual(self.process.call_count, 4)
        self.assertEqual(anew.further, result.further)
        self.assertEqual(anew.translations, result.translations)

    @mock.patch.object(attention_maps, "describe", lambda *arguments: {})
    def test_all_test_sets_of_the_problem_are_collected(self):
        examples.add_run(self.folder, "b-seed1")
        two = [runs.Run(x, 1, self.folder / f"{x}-seed1") for x in "ab"]
        more = problem_lib.Problem(
            name="pairs",
            source_language="en",
            target_language="de",
            vocab_size=340,
            splits={
                split: lambda tmp_dir, pairs=pairs: pairs
                for split, pairs in {
                    "train": examples.PAIRS,
                    "dev": examples.PAIRS[1:],
                    "test_2": examples.PAIRS[2:],
                    "test": examples.TEST,
                }.items()
            },
            tokenizer_file=self.run.files.tokenizer_path,
        )
        # The runs were trained when there was one test set.
        shutil.rmtree(more.folder(self.folder / "data"), ignore_errors=True)
        more.prepare(self.folder / "data")
        for use_test_set, expected in (
            (True, ("test", ["test_2"], [])),
            (False, ("dev", [], [])),
        ):
            report = collection.collect(
                two,
                0,
                str(self.folder / "data"),
                self.folder / "out",
                slots_lib.divide(1),
                use_test_set=use_test_set,
            )
            names = [one["name"] for one in report["further_test_sets"]]
            warned = [w for w in report["warnings"] if "no test split" in w]
            self.assertEqual((report["split"], names, warned), expected)
        made = self.folder / "out" / "translations" / "test_2" / "b-seed1.txt"
        self.assertEqual(made.read_text().count("\n"), 2)

    def test_record_with_a_field_of_another_type_is_computed_again(self):
        first = self.score()
        path = self.folder / "out" / "scores" / "a-seed1.json"
        record = json.loads(path.read_text())
        for damage in (
            {"translations_sha256": 7},
            {"source_lengths": "x"},
            {"loss": None},
        ):
            path.write_text(json.dumps(record | damage))
            self.assertEqual(self.score().record["key"], first.record["key"])
            self.assertEqual(
                json.loads(path.read_text())["source_lengths"],
                record["source_lengths"],
            )

    def test_other_search_settings_need_other_scores(self):
        self.score()
        hparams = self.run.files.read_hparams()
        self.run.files.write_hparams(hparams.replace(extra_length=0))
        self.score()
        self.assertEqual(self.process.call_count, 2)

    def test_average_is_scored_if_there_is_one(self):
        hparams = self.run.files.read_hparams()
        self.run.files.write_hparams(hparams.replace(average_checkpoints=2))
        (self.run.path / "average").mkdir()
        other = examples.add_run(self.folder, "b-seed1", shift=2)
        average = str(self.run.path / "average" / "ckpt-7")
        checkpoints.average([str(other / "ckpt-7")], average)
        self.assertEqual(runs.final_checkpoint(self.run), average)
        expected = translator_lib.Translator.load(average).translate(
            [source for source, _ in examples.TEST]
        )
        self.assertEqual(self.score().translations, expected)

    def test_attention_is_described_once_and_may_fail(self):
        sources = tiny_run.TEXT[:3:2]
        with mock.patch.object(
            attention_maps, "describe", return_value={"x": 1}
        ) as describe:
            for _ in range(2):
                result = self.score(sources)
                self.assertEqual(result.attention, {"x": 1})
                self.assertEqual(result.warning, "")
            describe.assert_called_once_with(
                str(self.run.path / "ckpt-7"), list(sources)
            )
        with mock.patch.object(
            attention_maps, "describe", side_effect=errors.UserError("No.")
        ):
            result = self.score(sources[:1])
        self.assertEqual(result.attention, {})
        self.assertEqual(result.warning, "a seed 1: no attention: No.")
        self.assertEqual(self.score().attention, {})

    @parameterized.parameters("tokenizer_sha256", "data")
    def test_data_of_another_run_are_refused(self, name):
        changed = {"tokenizer_sha256": "0" * 64, "data": {"dev": "0"}}
        self.problem[name] = changed[name]
        with self.assertRaisesRegex(
            errors.UserError,
            "Expected the data of pairs .* other data, in .*pairs",
        ):
            self.open_set()

    def test_missing_data_are_named(self):
        shutil.rmtree(self.folder / "data")
        with self.assertRaisesRegex(errors.UserError, "Received: none"):
            self.open_set()


class ProcessTest(ScoresTestCase):
    def test_error_in_the_process_is_reported(self):
        self.process.side_effect = self.true_child
        (self.run.path / "ckpt-7.npz").write_bytes(b"")
        # Longer than a command line may be.
        sources = ["\u6c34" * 600] * 60
        with self.assertRaisesRegex(
            errors.UserError,
            r"Scoring failed for 1 of 1: a seed 1 \(see .*a-seed1\.score\.log",
        ):
            with self.assertLogs("relpos_tf", "WARNING") as logs:
                self.score(sources)
        (message,) = (record.getMessage() for record in logs.records)
        self.assertRegex(
            message,
            r"Scoring of a seed 1 failed with exit code 1\. The end of "
            r".*a-seed1\.score\.log:(?s:.*)\n  .*ckpt-7[^\n]*\Z",
        )
        self.assertNotIn("Traceback", message)


if __name__ == "__main__":
    absltest.main()
