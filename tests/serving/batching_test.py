"""How lines of many requests are joined into batches."""

import time
from unittest import mock

from absl.testing import parameterized

import relpos_tf
from relpos_tf.decoding import decode_hparam
from relpos_tf.serving import batching
from relpos_tf.serving import limits as limits_lib
from relpos_tf.serving import prometheus
from relpos_tf.serving import queries
from relpos_tf.serving import served
from tests import tiny_run
from tests.serving import servers


def query(*lines, n_best=1, attention=False, **options):
    how = decode_hparam.DecodeHParams(**options)
    sizes = tuple(-(-len(line) // 4) for line in lines)
    return queries.Query(lines, how, "", n_best, attention, sizes=sizes)


LONG, SHORT, MIDDLE = "l" * 900, "s" * 225, "m" * 60
HUGE = "x" * 4 * (batching.BATCH_IDS // 5)
RANDOM = {"sampling_method": "random"}
# By name: the most lines of a batch, the queries that wait, and the batches.
JOINED = {
    "lines_that_came_during_a_batch": (
        64,
        [query("a", "b"), query("c"), query("d", "e")],
        [["a", "c", "d", "b", "e"]],
    ),
    "a_short_request_does_not_wait_for_a_long_one": (
        4,
        [query(*"123456789"), query("a", "b")],
        [["1", "a", "2", "b"], ["3", "4", "5", "6"], ["7", "8", "9"]],
    ),
    "other_settings_have_their_turn": (
        2,
        [query(*"12345"), query("a", alpha=1.5)],
        [["1", "2"], ["a"], ["3", "4"], ["5"]],
    ),
    "a_long_line_holds_up_none_that_came_before": (
        64,
        [query("a"), query(LONG), query("b"), query("")],
        [["a", "b", ""], [LONG]],
    ),
    "a_long_line_holds_up_none_that_came_after": (
        64,
        [query(LONG), query("a"), query("b")],
        [[LONG], ["a", "b"]],
    ),
    "the_request_that_has_waited_longest_decides": (
        64,
        [query(MIDDLE), query(LONG), query(SHORT)],
        [[MIDDLE, SHORT], [LONG]],
    ),
    "lines_of_up_to_four_times_the_length_are_joined": (
        64,
        [query(SHORT), query(MIDDLE), query(LONG)],
        [[SHORT, MIDDLE, LONG]],
    ),
    "short_lines_do_not_starve_a_long_one": (
        2,
        [query("0", LONG), query("1"), query("2"), query(LONG), query("3")],
        [[LONG, LONG], ["1", "2"], ["3", "0"]],
    ),
    "a_long_line_is_passed_over_once": (
        2,
        [query(x) for x in ("1", LONG, "2", "3", "4")],
        [["1", "2"], [LONG], ["3", "4"]],
    ),
    "lines_of_a_request_are_sorted": (
        3,
        [query("a" * 130, LONG, "c" * 120, "d" * 140, "")],
        [[LONG], ["d" * 140, "a" * 130, "c" * 120], [""]],
    ),
    "different_settings_are_not_joined": (
        64,
        [
            query("plain"),
            query("attention", attention=True),
            query("alpha", alpha=1.5),
            query("best", n_best=2),
            query("random", **RANDOM),
            query("again", **RANDOM),
        ],
        [["plain"], ["attention"], ["alpha"], ["best"], ["random"], ["again"]],
    ),
    "searches_for_several_translations_are_joined": (
        64,
        [query("x", n_best=n) for n in (2, 3, 4)],
        [["x", "x", "x"]],
    ),
    "long_lines_make_small_batches": (
        64,
        [query(HUGE) for _ in range(6)],
        [[HUGE] * 5, [HUGE]],
    ),
    "attention_makes_small_batches": (
        64,
        [query("a", attention=True) for _ in range(9)],
        [["a"] * 8, ["a"]],
    ),
    # Blank lines, which are not translated, stand for the others.
    "lines_of_a_random_request_keep_their_numbers": (
        2,
        [query("0", "1", "2", LONG, **RANDOM)],
        [["", "", "", LONG], ["0", "1"], ["", "", "2"]],
    ),
    "batches_of_random_requests_are_limited": (
        64,
        [query(*[HUGE] * 6, **RANDOM)],
        [[HUGE] * 5, [""] * 5 + [HUGE]],
    ),
}


class BatchingTest(parameterized.TestCase):
    def make(self, start=True, steps=(), **limits):
        """Makes a worker of a fake translator."""
        self.fake = servers.FakeTranslator()
        worker = batching.Worker(
            served.ServedModel("fake", self.fake),
            limits_lib.Limits(**limits),
            prometheus.Metrics(),
            steps,
        )
        if start:
            worker.start()
        self.addCleanup(worker.close)
        self.addCleanup(self.fake.gate.set)
        return worker

    def occupy(self, **limits):
        """Makes a worker that is stopped within a batch of one line."""
        worker = self.make(**limits)
        self.fake.gate.clear()
        job = worker.submit(query("first"))
        servers.wait_until(lambda: self.fake.batches)
        return worker, job

    def assert_translated(self, *jobs):
        for job in jobs:
            texts = [
                line["hypotheses"][0]["text"] for line in job.future.result(20)
            ]
            expected = list(map(servers.translation_of, job.query.lines))
            self.assertEqual(texts, expected)

    @parameterized.named_parameters(
        (name, *case) for name, case in JOINED.items()
    )
    def test_joined(self, most, waiting, expected):
        worker, first = self.occupy(max_batch_lines=most)
        jobs = [worker.submit(one) for one in waiting]
        self.fake.gate.set()
        self.assert_translated(first, *jobs)
        self.assertEqual(self.fake.batches[1:], expected)

    def test_an_idle_worker_waits_a_moment_for_others(self):
        worker = self.make(start=False, batch_wait_ms=1000)
        jobs = [worker.submit(query(f"{i}")) for i in range(7)]
        worker.start()
        self.assert_translated(*jobs)
        self.assertLen(self.fake.batches, 1)

    def test_after_a_batch_it_waits_for_a_full_one_and_no_longer(self):
        worker = self.make(max_batch_lines=2, batch_wait_ms=0)
        self.fake.seconds = 0.01
        with mock.patch.object(batching, "WAIT_SHARE", 1e6):
            self.assert_translated(worker.submit(query("first", "other")))
            jobs = [worker.submit(query("a"))]
            time.sleep(0.1)
            jobs.append(worker.submit(query("b")))
            self.assert_translated(*jobs)
        self.assertEqual(self.fake.batches[1:], [["a", "b"]])

    def test_draws_do_not_depend_on_the_batches(self):
        translator = relpos_tf.Translator.load(tiny_run.path())
        lines = [*tiny_run.TEXT, "", "days"]
        how = RANDOM | {"random_seed": 5}
        expected = translator.translate(lines, n_best=2, **how)
        worker = batching.Worker(
            served.ServedModel("tiny", translator),
            limits_lib.Limits(max_batch_lines=3),
            prometheus.Metrics(),
        )
        worker.start()
        self.addCleanup(worker.close)
        job = worker.submit(query(*lines, n_best=2, **how))
        found = [
            [one["text"] for one in line["hypotheses"]]
            for line in job.future.result(60)
        ]
        # Of a blank line, there is one.
        self.assertEqual(found, [x if any(x) else x[:1] for x in expected])
        self.assertGreater(len({text for texts in found for text in texts}), 9)

    def test_a_line_that_fails_does_not_fail_the_others(self):
        worker, _ = self.occupy()
        jobs = [worker.submit(query(x)) for x in ("a", "bad", "b", "bug", "c")]
        bad = worker.submit(query("d", "bad", "e"))
        with self.assertLogs("relpos_tf", "ERROR"):
            self.fake.gate.set()
            for job, message in (
                (jobs[1], "bad cannot"),
                (jobs[3], "server failed"),
                (bad, "bad cannot"),
            ):
                with self.assertRaisesRegex(ValueError, message):
                    job.future.result(20)
            self.assert_translated(*jobs[::2])
        self.assert_translated(worker.submit(query("the thread goes on")))

    def test_a_job_that_failed_is_not_continued(self):
        worker = self.make(max_batch_lines=1)
        job = worker.submit(query("bad", "not"))
        with self.assertRaises(ValueError):
            job.future.result(20)
        self.assert_translated(worker.submit(query("next")))
        self.assertEqual(self.fake.batches, [["bad"], ["next"]])
        self.assertEqual(worker.waiting(), 0)

    def test_closing_gives_up_what_waits_and_takes_nothing_more(self):
        worker, first = self.occupy(max_batch_lines=1)
        job = worker.submit(query("waits"))
        self.assertFalse(worker.close(0))
        self.assertTrue(job.future.cancelled())
        with self.assertRaises(limits_lib.RefusedError) as caught:
            worker.submit(query("late"))
        self.assertEqual(caught.exception.status, 503)
        self.fake.gate.set()
        self.assertTrue(worker.close())
        self.assert_translated(first)

    def test_the_warm_up_takes_a_step_after_each_batch(self):
        done = []
        steps = [
            lambda i=i: done.append(len(self.fake.batches)) for i in range(4)
        ]
        steps[1] = lambda: 1 / 0
        worker = self.make(start=False, steps=steps, max_batch_lines=1)
        jobs = [worker.submit(query(x)) for x in ("first", "second")]
        self.assertFalse(worker.is_warm)
        with self.assertLogs("relpos_tf", "INFO") as said:
            worker.start()
            self.assert_translated(*jobs)
            self.assertTrue(servers.wait_until(lambda: worker.is_warm))
            worker.close()
        self.assertEqual(done, [1, 2, 2])
        # What fails is logged and passed over.
        self.assertLen(said.output, 2)

    def test_kinds_of_searches_are_limited(self):
        worker = self.make(batch_wait_ms=0)
        for i in range(1, served.MOST_KINDS + 1):
            job = worker.submit(query("x", no_repeat_ngram_size=i, alpha=i / 7))
            self.assert_translated(job)
        with self.assertRaisesRegex(ValueError, "64 different"):
            worker.submit(query("x", min_length=7)).future.result(20)
        # Those of the page and those that were translated go on.
        for options in (
            {"n_best": 2, "attention": True},
            {},
            {"no_repeat_ngram_size": 3, "alpha": 5.0},
        ):
            self.assert_translated(worker.submit(query("x", **options)))

    def test_kinds_of_exports_which_keep_no_graphs_are_not_limited(self):
        model = served.ServedModel("export", servers.FakeTranslator(False))
        for i in range(served.MOST_KINDS + 3):
            settings = model.settings(query("x", no_repeat_ngram_size=i))
            self.assertLen(model.translate(settings, ["x"]), 1)
