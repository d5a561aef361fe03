"""Many clients at once, some of which misbehave: benchmarks/serving.py, small.

The translator is none, so that the server itself has most of the work.
"""

import itertools
import pathlib
import sys

from absl.testing import absltest

from tests.serving import servers

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import serving  # noqa: E402

LINES = [" ".join([f"line {i}"] * (1 + i % 7)) for i in range(131)]


def expected_of(line):
    texts = [servers.translation_of(line, i) for i in range(3)]
    return serving.Expected(texts[0], texts, [-1.5, -2.5, -3.5])


class LoadTest(absltest.TestCase):
    def serve(self, fake, expected, requests, **limits):
        """Starts a server; returns it and its load."""
        languages = "en", "de"
        served = servers.Served(
            {"fake": fake}, languages={"fake": languages}, **limits
        )
        self.enter_context(served)
        return served, serving.Load(
            served.port, LINES, expected, requests, languages
        )

    def test_nothing_is_lost_among_rubbish(self):
        # Slower than the clients, so that requests wait and are joined.
        fake = servers.FakeTranslator(seconds=0.02)
        served, load = self.serve(
            fake,
            list(map(expected_of, LINES)),
            600,
            max_batch_lines=16,
            max_line_ids=100,
            timeout_s=5.0,
        )
        load.run(clients=24, bad_clients=5)
        self.assertEqual(load.outcomes, {"right": 600})
        # Both APIs, each kind of request about as often.
        self.assertCountEqual(load.requests, serving.KINDS)
        self.assertGreater(min(load.requests.values()), 80)
        joined = served.metric('relpos_batch_lines_sum{model="fake"}')
        joined /= served.metric('relpos_batch_lines_count{model="fake"}')
        self.assertGreater(joined, 3)
        self.assertLessEqual(max(map(len, fake.batches)), 16)
        # Whatever the bad clients sent, the answer was a refusal.
        codes = {"400", "413", "422"}
        # A body that does not end is given up after five seconds.
        self.assertContainsSubset(load.bad, codes | {"none", "504"})
        self.assertContainsSubset(codes, load.bad)

    def test_memory_does_not_grow_with_the_requests(self):
        fake = servers.FakeTranslator()
        body = b'{"lines": [' + b'"a", ' * 40_000 + b'"a"]}'
        with servers.Served({"fake": fake}) as served:

            def memory():
                for _ in range(20):
                    self.assertEqual(served.post(body)[0], 422)
                    self.assertEqual(served.translate("a" * 999), ["A" * 999])
                    fake.batches.clear()
                return served.metric("process_resident_memory_bytes")

            memories = [memory() for _ in range(6)]
        # The allocator takes memory in large pieces, at any time: what is
        # kept grows in each interval.
        growth = min(b - a for a, b in itertools.pairwise(memories)) / 20
        # Of a body of 200 kB, which becomes a list of 40,000 str.
        self.assertLess(growth, 50_000)
