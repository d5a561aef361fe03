"""How lines of many requests are joined into batches."""

import concurrent.futures
import threading
import time
from unittest import mock

from absl.testing import absltest

import relpos_tf
from relpos_tf.decoding import decode_hparam
from relpos_tf.serving import batching
from relpos_tf.serving import limits as limits_lib
from relpos_tf.serving import metrics as metrics_lib
from relpos_tf.serving import queries
from relpos_tf.serving import served
from tests import tiny_run
from tests.serving import servers


def query(*lines, prefixes=(), n_best=1, attention="", **options):
    how = decode_hparam.DecodeHParams(**options)
    return queries.Query(lines, how, "", n_best, prefixes, attention)


class BatchingTest(absltest.TestCase):
    def make(self, start=True, is_cold=False, **limits):
        """Makes a worker of a fake translator."""
        self.fake = servers.FakeTranslator()
        model = served.ServedModel("fake", self.fake)
        self.worker = batching.Worker(
            model,
            limits_lib.Limits(**limits),
            metrics_lib.Metrics(),
            model.warm_up_steps() if is_cold else (),
        )
        if start:
            self.worker.start()
        self.addCleanup(self.worker.close)
        self.addCleanup(self.fake.gate.set)
        return self.worker

    def occupy(self, **limits):
        """Makes a worker that is stopped within a batch of one line."""
        worker = self.make(**limits)
        self.fake.gate.clear()
        job = worker.submit(query("first"))
        servers.wait_until(lambda: self.fake.batches)
        return worker, job

    def texts(self, job):
        return [one.texts[0] for one in job.future.result(20)]

    def assert_translated(self, *jobs):
        for job in jobs:
            expected = list(map(servers.translation_of, job.query.lines))
            self.assertEqual(self.texts(job), expected)

    def test_lines_that_came_during_a_batch_form_the_next(self):
        worker, first = self.occupy()
        jobs = [worker.submit(query(f"a{i}", f"b{i}")) for i in range(5)]
        self.fake.gate.set()
        self.assert_translated(first, *jobs)
        self.assertLen(self.fake.batches, 2)
        self.assertLen(self.fake.batches[1], 10)

    def test_an_idle_worker_waits_a_moment_for_others(self):
        worker = self.make(start=False, batch_wait_ms=1000)
        jobs = [worker.submit(query(f"{i}")) for i in range(7)]
        worker.start()
        self.assert_translated(*jobs)
        self.assertLen(self.fake.batches, 1)

    def test_after_a_batch_it_waits_for_a_full_one(self):
        worker = self.make(max_batch_lines=2, batch_wait_ms=0)
        self.fake.seconds = 0.01
        with mock.patch.object(batching, "WAIT_SHARE", 1000):
            self.assert_translated(worker.submit(query("first", "other")))
            jobs = [worker.submit(query("a"))]
            time.sleep(0.1)
            jobs.append(worker.submit(query("b")))
            self.assert_translated(*jobs)
        self.assertEqual(self.fake.batches[1:], [["a", "b"]])

    def test_a_full_batch_does_not_wait(self):
        worker = self.make(max_batch_lines=3, batch_wait_ms=1000)
        jobs = [worker.submit(query(f"{i}")) for i in range(3)]
        for job in jobs:
            job.future.result(0.8)

    def test_a_short_request_does_not_wait_for_a_long_one(self):
        worker, _ = self.occupy(max_batch_lines=4)
        long = worker.submit(query(*(f"l{i}" for i in range(9))))
        short = worker.submit(query("s0", "s1"))
        self.fake.gate.set()
        self.assert_translated(long, short)
        self.assertEqual(
            self.fake.batches[1:],
            [["l0", "s0", "l1", "s1"], ["l2", "l3", "l4", "l5"]]
            + [["l6", "l7", "l8"]],
        )

    def test_a_request_of_other_settings_has_its_turn(self):
        worker, _ = self.occupy(max_batch_lines=2)
        long = worker.submit(query("l0", "l1", "l2", "l3", "l4"))
        other = worker.submit(query("o0", alpha=1.5))
        self.fake.gate.set()
        self.assert_translated(long, other)
        self.assertEqual(
            self.fake.batches[1:],
            [["l0", "l1"], ["o0"], ["l2", "l3"], ["l4"]],
        )

    def test_lines_of_unlike_length_are_not_joined(self):
        long, short, middle = "l" * 900, "s" * 225, "m" * 60
        for waiting, expected in (
            # A long line holds up none that came before or after it.
            (["a", long, "b", ""], [["a", "b", ""], [long]]),
            ([long, "a", "b"], [[long], ["a", "b"]]),
            # The request that has waited longest decides.
            ([middle, long, short], [[middle, short], [long]]),
            ([short, middle, long], [[short, middle, long]]),
        ):
            worker, _ = self.occupy()
            jobs = [worker.submit(query(line)) for line in waiting]
            self.fake.gate.set()
            self.assert_translated(*jobs)
            self.assertEqual(self.fake.batches[1:], expected)

    def test_short_lines_that_keep_coming_do_not_starve_a_long_one(self):
        worker, _ = self.occupy(max_batch_lines=2)
        long = "l" * 900
        jobs = [worker.submit(query("0", long)), worker.submit(query("1"))]
        jobs += [worker.submit(query(x)) for x in ("2", long, "3", "4", "5")]
        self.fake.gate.set()
        self.assert_translated(*jobs)
        self.assertEqual(
            self.fake.batches[1:],
            [[long, long], ["1", "2"], ["3", "4"], ["5", "0"]],
        )
        worker, _ = self.occupy(max_batch_lines=2)
        jobs = [worker.submit(query(x)) for x in ("1", long, "2", "3", "4")]
        self.fake.gate.set()
        self.assert_translated(*jobs)
        # It is passed over once, while others are before it.
        self.assertEqual(
            self.fake.batches[1:], [["1", "2"], [long], ["3", "4"]]
        )

    def test_lines_of_a_request_are_sorted_and_answered_in_order(self):
        worker = self.make(max_batch_lines=3)
        lines = ["a" * 130, "b" * 999, "c" * 120, "d" * 140, "", "e" * 800]
        job = worker.submit(query(*lines, prefixes=tuple("ABCDEF")))
        self.assertEqual(
            self.texts(job),
            [
                servers.translation_of(line, prefix=prefix)
                for line, prefix in zip(lines, "ABCDEF", strict=True)
            ],
        )
        a, b, c, d, _, e = lines
        self.assertEqual(self.fake.batches, [[b, e], [d, a, c], [""]])

    def test_different_settings_are_not_joined(self):
        worker, _ = self.occupy()
        jobs = [
            worker.submit(one)
            for one in (
                query("plain"),
                query("prefix", prefixes=("P",)),
                query("attention", attention="heads"),
                query("alpha", alpha=1.5),
                query("best", n_best=2),
                query("random", sampling_method="random"),
                query("again", sampling_method="random"),
            )
        ]
        self.fake.gate.set()
        for job in jobs:
            job.future.result(20)
        self.assertEqual(
            self.fake.batches[1:], [list(job.query.lines) for job in jobs]
        )
        self.assertEqual(self.texts(jobs[1]), ["PXIFERP"])

    def test_searches_for_several_translations_are_joined(self):
        worker, _ = self.occupy()
        jobs = [worker.submit(query("x", n_best=n)) for n in (2, 3, 4)]
        self.fake.gate.set()
        for job in jobs:
            self.assertLen(job.future.result(20)[0].texts, 4)
        self.assertLen(self.fake.batches, 2)

    def test_lines_of_a_random_request_keep_their_numbers(self):
        worker = self.make(max_batch_lines=2)
        lines = [f"{i}" for i in range(7)] + ["long" * 300]
        prefixes = "ABCDEFGH"
        job = worker.submit(
            query(*lines, prefixes=tuple(prefixes), sampling_method="random")
        )
        self.assertEqual(
            self.texts(job),
            [
                servers.translation_of(line, prefix=prefix)
                for line, prefix in zip(lines, prefixes, strict=True)
            ],
        )
        # Blank lines, which are not translated, stand for the others.
        seen = [
            [i for i, line in enumerate(batch) if line]
            for batch in self.fake.batches
        ]
        self.assertEqual(seen, [[7], [0, 1], [2, 3], [4, 5], [6]])
        for batch, indices in zip(self.fake.batches, seen, strict=True):
            for i in indices:
                self.assertEqual(batch[i], lines[i])

    def test_batches_of_random_requests_are_limited(self):
        worker = self.make()
        long = "x" * (batching.BATCH_CHARACTERS // 3)
        for lines, attention, sizes in (
            ([long] * 7, "", [3, 3, 1]),
            (["a"] * 9, "heads", [8, 1]),
            (["a"] * 100, "", [64, 36]),
        ):
            self.fake.batches.clear()
            worker.submit(
                query(*lines, attention=attention, sampling_method="random")
            ).future.result(20)
            found = [sum(map(bool, batch)) for batch in self.fake.batches]
            self.assertEqual(found, sizes)

    def test_draws_do_not_depend_on_the_batches(self):
        translator = relpos_tf.Translator.load(tiny_run.path())
        lines = [*tiny_run.TEXT, "", "days"]
        how = {"sampling_method": "random", "random_seed": 5}
        expected = translator.translate(lines, n_best=2, **how)
        worker = batching.Worker(
            served.ServedModel("tiny", translator),
            limits_lib.Limits(max_batch_lines=3),
            metrics_lib.Metrics(),
        )
        worker.start()
        self.addCleanup(worker.close)
        job = worker.submit(query(*lines, n_best=2, **how))
        found = [one.texts for one in job.future.result(60)]
        self.assertEqual(found, expected)
        self.assertLen({text for texts in found for text in texts}, 19)

    def test_long_lines_and_attention_make_small_batches(self):
        worker = self.make(start=False)
        long = "x" * (batching.BATCH_CHARACTERS // 3)
        jobs = [worker.submit(query(long)) for _ in range(7)]
        jobs += [worker.submit(query("a", attention="heads")) for _ in range(9)]
        worker.start()
        for job in jobs:
            job.future.result(20)
        self.assertEqual(list(map(len, self.fake.batches)), [3, 3, 1, 8, 1])

    def test_a_line_that_fails_does_not_fail_the_others(self):
        worker, _ = self.occupy()
        jobs = [worker.submit(query(x)) for x in ("a", "bad", "b", "bug", "c")]
        bad = worker.submit(query("d", "bad", "e"))
        self.fake.gate.set()
        for i in (1, 3):
            with self.assertRaises(limits_lib.RefusedError) as caught:
                jobs[i].future.result(20)
            # A bug is not the client's.
            self.assertEqual(caught.exception.status, {1: 422, 3: 500}[i])
        with self.assertRaisesRegex(limits_lib.RefusedError, "bad cannot"):
            bad.future.result(20)
        self.assert_translated(*jobs[::2])
        self.assert_translated(worker.submit(query("the thread goes on")))

    def test_a_bug_fails_its_own_job(self):
        worker, _ = self.occupy()
        jobs = [worker.submit(query(x)) for x in ("a", "bug", "b")]
        self.fake.gate.set()
        with self.assertLogs("relpos_tf", "ERROR"):
            with self.assertRaisesRegex(limits_lib.RefusedError, "failed"):
                jobs[1].future.result(20)
            self.assert_translated(jobs[0], jobs[2])

    def test_a_job_that_failed_is_not_continued(self):
        worker = self.make(max_batch_lines=1)
        job = worker.submit(query("bad", "never"))
        with self.assertRaises(limits_lib.RefusedError):
            job.future.result(20)
        self.assert_translated(worker.submit(query("next")))
        self.assertEqual(self.fake.batches, [["bad"], ["next"]])
        self.assertEqual(worker.waiting(), 0)

    def test_a_request_that_was_given_up_is_not_translated(self):
        worker, first = self.occupy(max_batch_lines=2)
        gone = worker.submit(query("g0", "g1"))
        stays = worker.submit(query("s"))
        self.assertEqual(worker.waiting(), 3)
        gone.future.cancel()
        first.future.cancel()  # while it is translated
        self.assertEqual(worker.waiting(), 1)
        self.fake.gate.set()
        self.assert_translated(stays)
        self.assertEqual(self.fake.batches, [["first"], ["s"]])

    def test_a_full_queue_is_503_with_the_time_to_try_again(self):
        worker, _ = self.occupy(max_queue_lines=5)
        worker.submit(query("a", "b", "c"))
        with self.assertRaises(limits_lib.RefusedError) as caught:
            worker.submit(query("d", "e", "f"))
        self.assertEqual(caught.exception.status, 503)
        self.assertGreater(caught.exception.retry_after, 0)
        last = worker.submit(query("g", "h"))
        self.fake.gate.set()
        self.assert_translated(last)

    def test_closing_translates_what_waits_and_takes_nothing_more(self):
        worker, first = self.occupy(max_batch_lines=1)
        jobs = [worker.submit(query(f"{i}")) for i in range(3)]
        closing = threading.Thread(target=worker.close)
        closing.start()

        def is_refused():
            try:
                worker.submit(query())
            except limits_lib.RefusedError as error:
                return error.status == 503
            return False

        self.assertTrue(servers.wait_until(is_refused))
        self.assertTrue(closing.is_alive())
        self.fake.gate.set()
        closing.join(20)
        self.assertFalse(closing.is_alive())
        self.assert_translated(first, *jobs)

    def test_closing_at_once_gives_up_what_waits(self):
        worker, first = self.occupy(max_batch_lines=1)
        job = worker.submit(query("waits"))
        self.fake.gate.set()
        worker.close(drop=True)
        self.assert_translated(first)
        if not job.future.done():
            self.fail("The job is neither translated nor given up.")

    def test_kinds_of_requests_are_tried_while_no_batch_waits(self):
        worker = self.make(start=False, is_cold=True, max_batch_lines=1)
        jobs = [worker.submit(query(x)) for x in ("first", "second")]
        self.assertFalse(worker.is_warm)
        with self.assertLogs("relpos_tf", "INFO") as said:
            worker.start()
            self.assert_translated(*jobs)
            self.assertTrue(servers.wait_until(lambda: worker.is_warm))
            worker.close()
        self.assertLen(said.output, 1)
        # A busy server becomes warm as well.
        kinds = [lines[0] == "Hello." for lines in self.fake.batches]
        self.assertEqual(kinds, [False, True, False] + [True] * 5)
        # With and without: alternatives, a beginning, attention.
        kinds = worker.model.kinds_of_page()
        self.assertLen(set(kinds), 8)
        # Two of them are tried before.
        self.assertEqual(sum(kind.is_plain for kind in kinds), 2)

    def test_a_kind_of_requests_that_fails_is_logged_and_passed_over(self):
        worker = self.make(start=False, is_cold=True)
        with (
            mock.patch.object(served, "_WARM_UP", ("bug",)),
            self.assertLogs("relpos_tf", "ERROR") as said,
        ):
            worker.start()
            self.assertTrue(servers.wait_until(lambda: worker.is_warm))
        self.assertLen(said.output, 6)
        self.assert_translated(worker.submit(query("the thread goes on")))

    def test_closing_does_not_wait_for_kinds_of_requests(self):
        worker = self.make(start=False, is_cold=True)
        self.fake.gate.clear()
        job = worker.submit(query("first"))
        worker.start()
        servers.wait_until(lambda: self.fake.batches)
        closing = threading.Thread(target=worker.close)
        closing.start()
        servers.wait_until(lambda: worker._is_closing)
        self.fake.gate.set()
        closing.join(20)
        self.assertFalse(closing.is_alive())
        self.assert_translated(job)
        self.assertEqual(self.fake.batches, [["first"]])

    def test_many_threads_get_their_own_translations(self):
        worker = self.make(batch_wait_ms=1, max_batch_lines=8)

        def ask(i):
            job = worker.submit(query(*(f"{i} {j}" for j in range(i % 5))))
            self.assert_translated(job)

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(ask, range(400)))
        lines = sum(map(len, self.fake.batches))
        self.assertEqual(lines, sum(i % 5 for i in range(400)))

    def use_all_kinds(self, worker):
        """Translates in as many different ways as there may be."""
        for i in range(1, served.MOST_KINDS + 1):
            job = worker.submit(query("x", no_repeat_ngram_size=i, alpha=i / 7))
            self.assert_translated(job)

    def test_kinds_of_searches_are_limited(self):
        worker = self.make(batch_wait_ms=0)
        self.use_all_kinds(worker)
        with self.assertRaisesRegex(limits_lib.RefusedError, "64 different"):
            worker.submit(query("x", no_repeat_ngram_size=99))
        self.assert_translated(
            worker.submit(query("x", no_repeat_ngram_size=3, alpha=5.0))
        )

    def test_kinds_that_wait_are_not_more_than_the_limit(self):
        worker, first = self.occupy(batch_wait_ms=0)
        jobs = [
            worker.submit(query("x", no_repeat_ngram_size=i))
            for i in range(1, served.MOST_KINDS + 3)
        ]
        self.fake.gate.set()
        self.assert_translated(first, *jobs[:-2])
        for job in jobs[-2:]:
            with self.assertRaisesRegex(limits_lib.RefusedError, "64 differ"):
                job.future.result(20)

    def test_kinds_of_the_page_are_always_translated(self):
        worker = self.make(batch_wait_ms=0)
        self.use_all_kinds(worker)
        for wanted in (
            query("x"),
            query("x", n_best=3),
            query("x", n_best=2, attention="heads"),
            query("x", n_best=4, prefixes=("",), attention="average"),
        ):
            self.assert_translated(worker.submit(wanted))

    def test_only_kinds_that_were_translated_count(self):
        worker = self.make(batch_wait_ms=0)
        for i in range(served.MOST_KINDS + 1):
            self.assert_translated(worker.submit(query(min_length=i + 20)))
            with self.assertRaises(limits_lib.RefusedError):
                worker.submit(query("x", n_best=5, min_length=i + 20))
        self.assert_translated(worker.submit(query("x", min_length=7)))

    def test_kinds_of_exports_which_keep_no_graphs_are_not_limited(self):
        self.fake = servers.FakeTranslator(has_attention=False)
        model = served.ServedModel("export", self.fake)
        for i in range(served.MOST_KINDS + 1):
            settings = model.settings(query("x", no_repeat_ngram_size=i))
            model.translate(settings, ["x"], [""])
        self.assertLen(self.fake.batches, served.MOST_KINDS + 1)


if __name__ == "__main__":
    absltest.main()
