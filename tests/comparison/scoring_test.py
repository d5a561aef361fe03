"""Scores of models: the decoder's translations, computed once."""

import shutil
from unittest import mock

import tensorflow as tf

from relpos_tf import registry
from relpos_tf.comparison import collection
from relpos_tf.comparison import jobs
from relpos_tf.comparison import runs
from relpos_tf.comparison import scoring
from relpos_tf.decoding import model_engine
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.problems import test_sets
from relpos_tf.training import evaluation
from tests import folders
from tests.comparison import examples


class ScoresTestCase(folders.TestCase):
    def setUp(self):
        super().setUp()
        examples.copy(self.folder)
        self.run = runs.Run("a", 1, self.folder / "a-seed1")
        self.problem = test_sets.problem_of(self.run.files)
        self.true_start = jobs.start
        self.process = self.enter_context(examples.scores_in_this_process())
        self.enter_context(
            mock.patch.object(
                model_engine.ModelEngine, "translate", examples.quick_search
            )
        )

    def open_set(self, use_test_set=True):
        (found,) = collection.open_test_sets(
            str(self.folder / "data"), self.problem, use_test_set
        )
        return found

    def score_all(self, *wanted, further=()):
        return scoring.score(
            wanted, 0, [self.open_set(), *further], self.folder / "out"
        )

    def score(self, further=()):
        (result,) = self.score_all(self.run, further=further)
        return result


class TrueScoresTest(ScoresTestCase):
    def test_translations_are_the_decoders_and_the_loss_is_of_all_tokens(self):
        result = self.score()
        translator = translator_lib.Translator.load(self.run.path)
        lines = [source for source, _ in examples.TEST]
        expected = translator.translate(lines)
        self.assertEqual(result.translations, {"test": expected})
        self.assertEqual(expected[-1], "")
        self.assertEndsWith(expected[0], " (3, 0.6, 7)")  # of the tiny run
        self.assertGreater(len(set(expected)), 3)
        made = self.folder / "out" / "translations" / "a-seed1.test.txt"
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
        self.enter_context(
            mock.patch.object(evaluation, "teacher_forced", examples.quick_loss)
        )

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
        # Another search.
        hparams = self.run.files.read_hparams()
        self.run.files.write_hparams(hparams.replace(extra_length=0))
        second = self.score()
        self.assertEqual(self.process.call_count, 3)
        # A file cut short, and one of another form.
        path = self.folder / "out" / "scores" / "a-seed1.json"
        for damaged in (path.read_text()[:-9], "[]"):
            path.write_text(damaged)
            self.assertEqual(self.score().translations, second.translations)
        self.assertEqual(self.process.call_count, 5)
        # The files of translations are for other uses.
        made = self.folder / "out" / "translations" / "a-seed1.test.txt"
        content = made.read_bytes()
        made.unlink()
        self.assertEqual(self.score().translations, second.translations)
        self.assertEqual(self.process.call_count, 5)
        self.assertEqual(made.read_bytes(), content)

    def test_folders_that_this_process_imported_are_imported(self):
        with (
            mock.patch.object(registry, "usr_dirs", ["own"]),
            mock.patch.object(registry, "import_usr_dir") as imported,
        ):
            self.score()
        imported.assert_called_once_with("own")

    def test_further_sets_are_scored_in_the_same_process_once(self):
        dev = self.open_set(use_test_set=False)._replace(name="test_2")
        alone = self.score()
        result = self.score(further=[dev])
        self.assertEqual(self.process.call_count, 2)
        expected = translator_lib.Translator.load(self.run.path).translate(
            [source for source, _ in examples.PAIRS[1:]]
        )
        self.assertEqual(
            result.translations, alone.translations | {"test_2": expected}
        )
        self.assertEqual(result.record["loss"], alone.record["loss"])
        self.assertEqual(self.score(further=[dev]), result)
        self.assertEqual(self.process.call_count, 2)


class ProcessTest(ScoresTestCase):
    def test_error_in_the_process_is_reported(self):
        self.process.side_effect = self.true_start
        (self.run.path / "ckpt-7.npz").write_bytes(b"")
        with self.assertLogs("relpos_tf", "INFO") as logs:
            self.assertEqual(self.score_all(self.run), [])
        *said, message, last = (x.getMessage() for x in logs.records)
        self.assertRegex(last, r"1 of 1: a seed 1 \(see .*a-seed1\.score\.")
        self.assertRegex(message, r"failed with code 1\. See .*score\.log")
        self.assertRegex(" ".join(said), r"\[1/1\] .*ckpt-7")
        self.assertNotIn("Traceback", "".join(logs.output))
