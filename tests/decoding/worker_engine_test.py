"""Several processes translate as one does; they fail and stop in one sentence.

The processes import this module, so it needs no TensorFlow.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from unittest import mock

import numpy as np
from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.bin import command
from relpos_tf.bin import decoder
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import translator as translator_lib
from relpos_tf.decoding import worker_engine
from relpos_tf.utils import checked_json
from relpos_tf.utils import processes
from relpos_tf.utils import slots as slots_lib

HPARAMS = hparam.HParams(beam_size=3, alpha=0.6, extra_length=7)
# Of many lengths, so that a batch has lines from everywhere.
LINES = [f"{'b' * (i * 7 % 11)}{i}" if i % 5 else " " for i in range(61)]
RUN = """
import sys
from tests.decoding import worker_engine_test

if __name__ == "__main__":
    worker_engine_test.run_decoder(sys.argv[1:])
"""


class TellingEngine:
    """Says in a translation which lines were in its batch."""

    def __init__(self):
        self.process = os.getpid()

    def complete(self, decode_hparams):
        return decode_hparams.fill(HPARAMS)

    def items(self, lines):
        return [engines.Item(line, len(line) + 1) for line in lines]

    def truncate(self, item, size):
        return item._replace(content=item.content[: size - 1], size=size)

    def translate(self, items, decode_hparams, n_best):
        contents = [item.content for item in items]
        if "kill" in contents:
            os.kill(os.getpid(), signal.SIGKILL)
        if "slow" in contents:
            pathlib.Path(os.environ["BEGUN"]).touch()
            time.sleep(100)
        if "bug" in contents:
            raise ZeroDivisionError("a bug")
        if "large" in contents:
            raise MemoryError
        # Later batches have shorter lines, and would overtake this one.
        time.sleep(min(0.01, 0.0002 * sum(item.size for item in items)))
        joined = "+".join(
            f"{item.number}{''.join(item.prefix)}{item.content}"
            for item in items
        )
        return [
            engines.Translation(
                [f"{item.content} of {joined} {i}" for i in range(n_best)],
                [-item.size - i / 3 for i in range(n_best)],
                "7" not in item.content,
            )
            for item in items
        ]


class SteerableTellingEngine(TellingEngine):
    """Also takes prefixes, and tells the attention."""

    def with_prefixes(self, items, prefixes):
        return [
            item._replace(prefix=tuple(prefix))
            for item, prefix in zip(items, prefixes, strict=True)
        ]

    def with_attention(self, items, translations):
        return [
            one._replace(
                attention=[
                    engines.Attention(
                        list(item.content),
                        [text],
                        np.full([1, 1, 1, len(text)], item.size / 3),
                    )
                    for text in one.texts
                ]
            )
            for item, one in zip(items, translations, strict=True)
        ]


_engines = []  # of this process


def load():
    """Returns the engine of this process."""
    if not _engines:
        _engines.append(SteerableTellingEngine())
    return _engines[0]


def refuse():
    raise errors.UserError("The run is damaged.")


def run_decoder(arguments):
    """Runs the decoder with two processes, however few cores there are."""

    def load_export(path, *, workers, **kwargs):
        engine = worker_engine.start(load, workers)
        return translator_lib.Translator(engine=engine, name=path, **kwargs)

    with (
        mock.patch.object(slots_lib, "divide", divide),
        mock.patch.object(
            translator_lib.Translator, "load_export", load_export
        ),
    ):
        sys.exit(command.execute(decoder.main, arguments))


def divide(number):
    return slots_lib.Slots((slots_lib.Slot(),) * number, 0, 0)


def process_of(engine):
    time.sleep(0.5)  # so that the next call goes to another
    return engine.process


def translated(engine, lines, **kwargs):
    """Returns all that a translator tells: results, progress and warnings."""
    translator = translator_lib.Translator(
        engine=engine, batch_size=4, max_input_size=9
    )
    told = []
    with mock.patch.object(translator_lib, "_log") as log:
        results = list(
            translator.translations(
                lines,
                decode_hparam.DecodeHParams(),
                n_best=2,
                progress=told.append,
                chunk_lines=23,
                **kwargs,
            )
        )
    return str(results), told, str(log.mock_calls)


class WorkersTest(parameterized.TestCase):
    @parameterized.parameters(2, 3)
    def test_results_are_those_of_one_process(self, number):
        prefixes = ["yes" if i % 3 else "" for i in range(len(LINES))]
        kinds = (
            {},
            {"prefix": prefixes, "with_attention": True},
        )
        with processes.Workers([slots_lib.Slot()] * number) as workers:
            engine = worker_engine.start(load, workers)
            waits = [engine.call(process_of) for _ in range(number)]
            self.assertLen({os.getpid(), *(w() for w in waits)}, number + 1)
            for kwargs in kinds:
                expected = translated(SteerableTellingEngine(), LINES, **kwargs)
                self.assertEqual(translated(engine, LINES, **kwargs), expected)
                # And of a stream.
                self.assertEqual(
                    translated(engine, iter(LINES), **kwargs), expected
                )
        results, told, warnings = expected
        self.assertEqual(told[-1], len(LINES))
        self.assertEqual(told, sorted(told))
        self.assertGreater(len(told), 12)
        self.assertIn("only the first", warnings.lower())
        self.assertRegex(results, r"of \d+yesb+\d+\+")

    def test_a_stream_is_read_no_further_than_by_one_process(self):
        read = []
        lines = (read.append(i) or str(i) for i in range(10))
        with processes.Workers([slots_lib.Slot()]) as workers:
            translator = translator_lib.Translator(
                engine=worker_engine.start(load, workers)
            )
            found = translator.translate_lines(lines, chunk_lines=3)
            self.assertStartsWith(next(found), "0 of ")
            self.assertEqual(read, [0, 1, 2])
            self.assertLen(list(found), 9)
            # Errors are those of one process, too.
            for line, kind, message in (
                ("large", errors.UserError, "Line 3 of 6 ids does not fit"),
                ("bug", ZeroDivisionError, "a bug"),
            ):
                with self.assertRaisesRegex(kind, message):
                    translator.translate(["a", "", line])
            with self.assertRaisesRegex(errors.UserError, "is damaged"):
                worker_engine.start(refuse, workers)
            # An engine without attention stays one.
            engine = worker_engine.start(TellingEngine, workers)
            with self.assertRaisesRegex(errors.UserError, "takes no prefix"):
                translated(engine, ["a"], prefix=["b"])

    def test_each_process_has_its_part_of_the_machine(self):
        core = min(os.sched_getaffinity(0))
        slots = [
            slots_lib.Slot({"PART": "1"}, (core,)),
            slots_lib.Slot({"PART": "2"}),
        ]
        with processes.Workers(slots, prepare=announce) as workers:
            waits = [workers.call(part) for _ in slots]
            found = dict(wait() for wait in waits)
        self.assertEqual(found["1 ready"], {core})
        self.assertEqual(found["2 ready"], os.sched_getaffinity(0))
        self.assertNotIn("PART", os.environ)

    def test_a_block_that_raises_does_not_wait_for_calls(self):
        started = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            with processes.Workers([slots_lib.Slot()] * 2) as workers:
                process = workers.call(os.getpid)()
                workers.call(time.sleep, 100)
                workers.call(time.sleep, 100)
                raise KeyboardInterrupt
        self.assertLess(time.monotonic() - started, 60)
        self.assertFalse(pathlib.Path(f"/proc/{process}").exists())


def announce():
    os.environ["PART"] += " ready"


def part():
    time.sleep(0.5)  # so that the next call goes to the other process
    return os.environ["PART"], os.sched_getaffinity(0)


def live_processes(group):
    """Returns the processes of a group that have not ended."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if words[0] != "Z" and int(words[2]) == group:
            found.append(path.parent.name)
    return found


class CommandTest(parameterized.TestCase):
    """`relpos-decoder --num_workers=2`, in a process group of its own."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        info = checked_json.dumps(
            {
                "format": "ctranslate2",
                "files": {},
                "decode_hparams": {},
                "tokenizer": "",
                "tokenizer_sha256": "",
            }
        )
        (self.folder / "export_info.json").write_text(info)
        self.begun = self.folder / "begun"

    def start(self, line):
        """Starts the decoder on a line in the third chunk, of 4,096 each.

        The first one is finished before the third is begun.
        """
        text = "a\n" * 8192 + f"{line}\n"
        (self.folder / "source").write_text(text)
        return subprocess.Popen(
            [
                *(sys.executable, "-c", RUN, f"--export_dir={self.folder}"),
                f"--decode_from_file={self.folder / 'source'}",
                f"--decode_to_file={self.folder / 'target'}",
                "--num_workers=2",
            ],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"BEGUN": str(self.begun)},
            start_new_session=True,
        )

    def check_end(self, process, code, message):
        """Checks the end of a decoder, and that nothing of it is left."""
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, err)
        self.assertRegex(err.splitlines()[-1], message)
        self.assertNotIn("Traceback", err)
        self.assertFalse((self.folder / "target").exists())
        self.assertRegex(err, r"The [4-8],\d{3} finished lines are in ")
        deadline = time.monotonic() + 30
        while left := live_processes(process.pid):
            self.assertLess(time.monotonic(), deadline, left)
            time.sleep(0.05)

    def test_a_killed_process_ends_the_command_in_one_sentence(self):
        process = self.start("kill")
        self.check_end(
            process, 1, r"^relpos-decoder: One of 2 worker .* was killed, .*\.$"
        )

    @parameterized.parameters(
        (signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")
    )
    def test_a_signal_to_all_ends_all_of_them(self, number, code, word):
        process = self.start("slow")
        while not self.begun.exists() or not self.written():
            self.assertIsNone(process.poll())
            time.sleep(0.1)
        os.killpg(process.pid, number)
        self.check_end(process, code, f"^relpos-decoder: {word}.$")

    def written(self):
        others = {"source", "begun", "export_info.json"}
        paths = [p for p in self.folder.iterdir() if p.name not in others]
        return any(path.stat().st_size for path in paths)


class FlagTest(parameterized.TestCase):
    @parameterized.parameters(
        ("--num_workers=0", "--num_workers"),
        ("--num_workers=two", "--num_workers"),
        (
            "--num_workers=2 --decode_interactive",
            "one process serves --decode_interactive and --score_file. Rec",
        ),
        ("--num_workers=2 --score_file=x", "one process serves"),
    )
    def test_wrong_values_are_refused(self, arguments, message):
        words = ["--output_dir=there", *arguments.split()]
        with mock.patch.object(sys, "stderr") as err:
            self.assertEqual(command.execute(decoder.main, words), 2)
        (line,) = (call.args[0] for call in err.write.mock_calls)
        self.assertRegex(line, f"^relpos-decoder: .*{re.escape(message)}")
        self.assertEqual(line.count("\n"), 1)


if __name__ == "__main__":
    absltest.main()
