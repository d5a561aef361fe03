"""Tests of a run's files."""

import builtins
import errno
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import textwrap
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.models import run_dir
from tests import tiny_run


def event(step, **more):
    """Returns an event of metrics.jsonl."""
    return {"step": step, "split": "dev", "loss": 0.5, "bleu": 7.0, **more}


class RunDirTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.run = run_dir.RunDir(self.folder / "run")

    def test_hparams_come_back(self):
        hparams = hparam.HParams().replace(hidden_size=48, alpha=0.25)
        self.assertFalse(self.run.has_hparams())
        self.run.write_hparams(hparams)
        self.assertTrue(self.run.has_hparams())
        self.assertEqual(self.run.read_hparams(), hparams)

    def test_damaged_hparams_are_named(self):
        self.run.write_hparams(hparam.HParams())
        path = self.run.path / "hparams.json"
        path.write_text(path.read_text()[:30])
        with self.assertRaisesRegex(errors.UserError, "hparams.json is dam"):
            self.run.read_hparams()

    def test_flipped_letter_of_hparams_is_damage(self):
        self.run.write_hparams(hparam.HParams(hidden_size=48))
        path = self.run.path / "hparams.json"
        text = path.read_text()
        path.write_text(text.replace('"hidden_size": 48', '"hidden_size": 49'))
        with self.assertRaisesRegex(errors.UserError, "fit its checksum"):
            self.run.read_hparams()

    def test_hparams_that_a_user_changed_have_no_checksum(self):
        self.run.path.mkdir()
        text = hparam.HParams(hidden_size=48).to_json()
        (self.run.path / "hparams.json").write_text(text)
        self.assertEqual(self.run.read_hparams().hidden_size, 48)

    def test_folder_without_hparams_is_no_run(self):
        with self.assertRaisesRegex(errors.UserError, "Expected a run's"):
            self.run.read_hparams()

    def test_metrics_are_lines_of_json(self):
        self.run.append_metrics(event(1))
        self.run.append_metrics(event(2, text="ü\u2028"))
        self.assertEqual(
            self.run.read_metrics(),
            [event(1), event(2, text="ü\u2028")],
        )

    def test_line_torn_by_a_kill_is_dropped(self):
        self.run.append_metrics(event(1))
        with open(self.run.path / "metrics.jsonl", "ab") as file:
            file.write('{"step": 2, "text": "ü'.encode()[:-1])
        self.assertEqual(self.run.read_metrics(), [event(1)])
        self.run.truncate_metrics(7)  # as every start of training does
        self.run.append_metrics(event(3))
        self.assertEqual(self.run.read_metrics(), [event(1), event(3)])

    def test_events_after_the_checkpoint_are_dropped(self):
        self.run.truncate_metrics(5)  # nothing there yet
        for step in (4, 5, 6):
            self.run.append_metrics(event(step))
        self.run.truncate_metrics(5)
        self.assertEqual(self.run.read_metrics(), [event(4), event(5)])

    def test_another_tokenizer_is_refused(self):
        first, second = self.folder / "first", self.folder / "second"
        first.write_bytes(b"one")
        second.write_bytes(b"two")
        self.run.copy_tokenizer(first)
        self.run.copy_tokenizer(first)
        with self.assertRaisesRegex(errors.UserError, "is not the one"):
            self.run.copy_tokenizer(second)
        self.assertEqual(
            pathlib.Path(self.run.tokenizer_path).read_bytes(), b"one"
        )

    def test_tokenizer_that_is_not_there_is_an_error(self):
        with self.assertRaisesRegex(errors.UserError, "Cannot read the tok"):
            self.run.copy_tokenizer(self.folder / "none.model")

    def test_damaged_line_of_metrics_is_named(self):
        self.run.append_metrics(event(1))
        with open(self.run.path / "metrics.jsonl", "ab") as file:
            file.write(b"\0\0\0\n")
        with self.assertRaisesRegex(errors.UserError, "line 2, is damaged"):
            self.run.read_metrics()

    @parameterized.parameters(
        ("3", "expected a JSON object"),
        ("null", "expected a JSON object"),
        ("[" * 100_000, "expected JSON"),
        ('{"split": "dev"}', "the fields loss, step. Received: split"),
        ('{"step": 1, "split": "dev", "loss": 1}', "the fields bleu"),
        (
            '{"step": 1, "split": "train", "loss": 1, "target_tokens": 9.0}',
            "peak_memory_mb, steps_per_second, tokens_per_second. Received",
        ),
        (
            '{"step": "7", "split": "dev", "loss": 1}',
            '`step` must be of type int.*"7"',
        ),
        (
            '{"step": true, "split": "dev", "loss": 1}',
            "`step` must be of type int. Received: true",
        ),
        (
            '{"step": 1, "split": [], "loss": 1}',
            "`split` must be of type str",
        ),
        (
            '{"step": 1, "split": "dev", "loss": 1, "bleu": "9"}',
            "`bleu` must be of type float",
        ),
    )
    def test_line_of_another_kind_is_named(self, line, expected):
        self.run.append_metrics(event(1))
        with open(self.run.path / "metrics.jsonl", "a") as file:
            file.write(f"{line}\n")
        with self.assertRaisesRegex(
            errors.UserError, f"line 2, is damaged: .*{expected}.*Remove the"
        ):
            self.run.read_metrics()

    def test_failed_write_leaves_the_file_as_it_was(self):
        self.run.write_hparams(hparam.HParams())
        with mock.patch.object(os, "replace", side_effect=OSError("full")):
            with self.assertRaisesRegex(errors.UserError, "hparams.json: full"):
                self.run.write_hparams(hparam.HParams(hidden_size=48))
        self.assertEqual(os.listdir(self.run.path), ["hparams.json"])
        self.assertEqual(self.run.read_hparams(), hparam.HParams())

    def test_full_disk_is_a_user_error_wherever_it_shows(self):
        self.run.append_metrics(event(1))
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for target, write, name in (
            (builtins, "open", "metrics.jsonl"),
            (os, "fsync", "flags.txt"),
        ):
            with mock.patch.object(target, write, side_effect=full):
                with self.assertRaisesRegex(
                    errors.UserError, f"{name}: no space left on.* Make room"
                ):
                    if name == "flags.txt":
                        self.run.write_flags("--x")
                    else:
                        self.run.append_metrics(event(2))
        self.assertEqual(self.run.read_metrics(), [event(1)])
        self.assertEqual(os.listdir(self.run.path), ["metrics.jsonl"])

    def test_line_that_the_disk_had_no_room_for_is_dropped(self):
        self.run.append_metrics(event(1))
        path = self.run.path / "metrics.jsonl"
        limit = path.stat().st_size + 5
        code = f"""
            import pathlib, resource, signal
            from relpos_tf.models import run_dir
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
            try:
                run_dir.RunDir({str(self.run.path)!r}).append_metrics(
                    {{"step": 2, "bleu": 7.0}}
                )
            except ValueError as error:
                print(type(error).__name__, error)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
        )
        self.assertRegex(done.stdout, r"\AUserError .*jsonl: file too large\.")
        self.assertGreater(path.stat().st_size, limit - 5)
        self.assertEqual(self.run.read_metrics(), [event(1)])

    def test_library_under_another_name_is_no_obstacle(self):
        missing = importlib.metadata.PackageNotFoundError
        with mock.patch.object(
            importlib.metadata, "version", side_effect=missing
        ):
            self.assertEqual(run_dir.versions()["tensorflow"], "not installed")

    def test_versions_name_what_results_depend_on(self):
        versions = run_dir.versions()
        self.assertEqual(versions["tensorflow"].split(".")[:2], ["2", "21"])
        self.assertContainsSubset(
            {"python", "keras", "numpy", "relpos_tf"}, versions
        )

    @parameterized.parameters(
        ({"tokenizer_sha256": 7}, "its field `tokenizer_sha256` must be of"),
        ({"data": ["x"]}, "its field `data` must be of type dict"),
        ({"data": {"train": 7}}, "its field `data` must be of type dict"),
        ({"problem": {}}, "its field `problem` must be of type str"),
    )
    def test_damaged_problem_is_refused(self, fields, message):
        self.assertEqual(self.run.read_problem(), {})
        expected = tiny_run.PROBLEM | {"more": 7}
        self.run.write_problem(expected)
        self.assertEqual(self.run.read_problem(), expected)
        self.run.write_problem(expected | fields)
        with self.assertRaisesRegex(
            errors.UserError, f"problem.json is damaged: {message}"
        ):
            self.run.read_problem()

    @parameterized.parameters(*tiny_run.PROBLEM)
    def test_problem_without_a_field_is_refused(self, name):
        fields = dict(tiny_run.PROBLEM)
        del fields[name]
        self.run.write_problem(fields)
        with self.assertRaisesRegex(
            errors.UserError, f"damaged: expected the fields {name}. Received"
        ):
            self.run.read_problem()


class LatestRunTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.create_tempdir().full_path)

    def make(self, name, seconds, hparams=True, step=10):
        folder = self.root / name
        folder.mkdir(parents=True)
        if hparams:
            (folder / "hparams.json").write_text("{}")
        if step:
            checkpoint = folder / f"ckpt-{step}.npz"
            checkpoint.touch()
            os.utime(checkpoint, (seconds, seconds))

    def test_newest_checkpoint_wins(self):
        self.make("old", 100)
        self.make("group/new", 300)
        self.make("middle", 200)
        self.make("without_checkpoint", 400, step=None)
        self.make("no_run", 500, hparams=False)
        self.assertEqual(
            run_dir.latest_run(str(self.root)), self.root / "group" / "new"
        )

    def test_none_is_an_error_that_says_what_to_do(self):
        with self.assertRaisesRegex(errors.UserError, "relpos-trainer"):
            run_dir.latest_run(str(self.root))
        with self.assertRaisesRegex(errors.UserError, "with --model"):
            run_dir.latest_run(str(self.root), "--model")


class SameArchitectureTest(parameterized.TestCase):
    def test_other_weights_are_an_error(self):
        old = hparam.HParams()
        with self.assertRaisesRegex(errors.UserError, "pos=timing .now none"):
            run_dir.check_same_architecture(old, old.replace(pos="none"))

    def test_another_schedule_is_a_warning(self):
        old = hparam.HParams()
        lines = run_dir.check_same_architecture(
            old, old.replace(learning_rate_warmup_steps=7)
        )
        self.assertLen(lines, 1)
        self.assertIn("learning_rate_warmup_steps was 4000", lines[0])

    @parameterized.parameters("pos", "decoder_pos")
    def test_length_of_learned_positions_counts(self, name):
        learned = hparam.HParams().replace(**{name: "emb"})
        with self.assertRaisesRegex(errors.UserError, "max_length=256 .now 41"):
            run_dir.check_same_architecture(
                learned, learned.replace(max_length=41)
            )

    def test_length_without_learned_positions_does_not_count(self):
        old = hparam.HParams()
        self.assertLen(
            run_dir.check_same_architecture(old, old.replace(max_length=41)), 1
        )

    def test_every_field_of_a_layer_counts(self):
        old = hparam.HParams()
        for field, value in (
            ("max_relative_position", 3),
            ("heads_share_relative_embedding", True),
            ("add_relative_to_values", False),
            ("shared_embedding", False),
            ("norm_epsilon", 1e-3),
            ("attention_score", "additive"),
            ("attention_window", 3),
            ("attention_window_heads", 3),
            ("attention_window_layers", 3),
            ("encoder_attention_direction", "split"),
            ("localness", "query"),
            ("localness_window", 3),
        ):
            with self.assertRaisesRegex(errors.UserError, field):
                run_dir.check_same_architecture(
                    old, old.replace(**{field: value})
                )

    def test_every_regulariser_may_change(self):
        old = hparam.HParams()
        for field in (
            "attention_dropout",
            "bpe_dropout",
            "label_smoothing",
            "layer_prepostprocess_dropout",
            "moving_average_decay",
            "pair_concatenation",
            "relu_dropout",
            "symbol_dropout",
            "weight_decay",
        ):
            lines = run_dir.check_same_architecture(
                old, old.replace(**{field: 0.25})
            )
            was = getattr(old, field)
            self.assertEqual(
                lines,
                [f"{field} was {was} in this run so far and is now 0.25."],
            )


if __name__ == "__main__":
    absltest.main()
