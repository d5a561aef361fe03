"""The examples in docstrings run and give the results shown."""

import doctest
import importlib

from absl.testing import parameterized

from tests.conformance import import_order_test

MODULES = (
    "relpos_tf",
    *(f"relpos_tf.{name}" for name in sorted(import_order_test.modules())),
    *(
        f"relpos_tf.bin.{path.stem}"
        for path in sorted((import_order_test.PACKAGE / "bin").glob("*.py"))
        if path.name != "__init__.py"
    ),
)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class DocstringsTest(parameterized.TestCase):
    @parameterized.parameters(*MODULES)
    def test_examples_of_a_module_hold(self, name):
        module = importlib.import_module(name)
        self.assertTrue(module.__doc__)
        report = []
        runner = doctest.DocTestRunner(optionflags=OPTIONS)
        for test in doctest.DocTestFinder(exclude_empty=True).find(module):
            runner.run(test, out=report.append)
        self.assertEqual(runner.failures, 0, "".join(report))
