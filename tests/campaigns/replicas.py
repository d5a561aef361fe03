"""Compares replicas and accumulated batches with one replica and one batch.

    python -m tests.campaigns.replicas

Several GPUs of a machine are used with NCCL. Without them, the CPU is split
into four devices, and two classes of tf.distribute sum the gradients; the
second packs them by the code that packs them for NCCL.

The first table has the largest difference of any weight after ten updates of
the same sentences. The second says whether an update is skipped if its loss or
gradient is NaN or infinite in one batch of one replica. The exit code is 1 if a
row is not as expected.
"""

import argparse
import itertools
import sys

import keras
import numpy as np
import tensorflow as tf

from relpos_tf import hparam
from relpos_tf.models import transformer
from relpos_tf.training import optimizers
from relpos_tf.training import train_step
from tests.campaigns import breakable

UPDATES = 10
SENTENCES = 16  # of an update
TOLERANCE = 1e-6
KINDS = ("equal", "unequal", "empty")
HPARAMS = hparam.HParams(
    vocab_size=23,
    hidden_size=8,
    filter_size=12,
    num_heads=2,
    num_hidden_layers=1,
    self_attention_type="dot_product_relative",
    max_relative_position=2,
    layer_prepostprocess_dropout=0.0,
    learning_rate_warmup_steps=100,
)
SPEC = dict.fromkeys(
    ("inputs", "targets"), tf.TensorSpec([None, None], tf.int32)
)


def sentences(seed):
    """Returns pairs of lists of ids for every update."""
    random = np.random.default_rng(seed)
    return [
        [
            [random.integers(2, 19, random.integers(1, 8)) for _ in range(2)]
            for _ in range(SENTENCES)
        ]
        for _ in range(UPDATES)
    ]


def batch(pairs):
    """Pads pairs to a batch, which may have no rows."""
    sides = list(zip(*pairs, strict=True)) or [(), ()]
    result = {}
    for name, side in zip(SPEC, sides, strict=True):
        length = max((len(ids) for ids in side), default=1)
        rows = [np.pad(ids, (0, length - len(ids))) for ids in side]
        result[name] = np.array(rows, np.int32).reshape([-1, length])
    return result


def split(pairs, parts, kind, random):
    """Splits the pairs of an update into `parts` batches."""
    if kind == "equal":
        cuts = len(pairs) // parts * np.arange(1, parts)
    elif kind == "unequal":
        cuts = 1 + random.choice(len(pairs) - 1, parts - 1, replace=False)
    else:
        cuts = random.integers(0, len(pairs) + 1, parts - 1)
        cuts[: parts // 2] = 0  # the first batches get nothing
    bounds = [0, *sorted(cuts), len(pairs)]
    return [
        batch(pairs[begin:end])
        for begin, end in itertools.pairwise(map(int, bounds))
    ]


class Machine:
    """A model on `replicas` devices, trained again and again from one state.

    Args:
        replicas: int.
        accumulate: int. Batches of an update.
        hparams: `hparam.HParams`.
        kind: class of the model.
        reduction: class of the replicas' sums, or None: NCCL, on GPUs.
        **options: of `train_step.compile_step`.
    """

    def __init__(
        self,
        replicas,
        accumulate,
        hparams=HPARAMS,
        kind=transformer.Transformer,
        reduction=tf.distribute.ReductionToOneDevice,
        **options,
    ):
        self.parts = replicas * accumulate
        self._accumulate = accumulate
        self._strategy = tf.distribute.get_strategy()
        if replicas > 1:
            self._strategy = tf.distribute.MirroredStrategy(
                [
                    f"{'CPU' if reduction else 'GPU'}:{i}"
                    for i in range(replicas)
                ],
                cross_device_ops=reduction and reduction(),
            )
        keras.utils.set_random_seed(7)
        with self._strategy.scope():
            self.model = kind(hparams)
            variables = {v.path: v.value for v in self.model.variables}
            self._optimizer = optimizers.Adam(hparams, variables)
        averages = self._optimizer.averages.variables
        self.variables = variables | self._optimizer.state
        self.variables |= {f"average/{n}": v for n, v in averages.items()}
        self._begin = self.state()
        self.step = train_step.compile_step(
            self._strategy,
            breakable.Fragile(self.model),
            self._optimizer,
            self._distributed([]).element_spec,
            accumulate_steps=accumulate,
            **options,
        )

    def state(self):
        """Returns every weight and the optimizer's state, of all replicas."""
        copies = self._strategy.experimental_local_results
        return {
            name: np.stack([copy.numpy() for copy in copies(variable)])
            for name, variable in self.variables.items()
        }

    def reset(self):
        """Restores the initial weights."""
        for name, variable in self.variables.items():
            variable.assign(self._begin[name][0])

    def _distributed(self, batches):
        return self._strategy.distribute_datasets_from_function(
            lambda _: tf.data.Dataset.from_generator(
                lambda: iter(batches), output_signature=SPEC
            )
        )

    def train(self, updates):
        """Makes updates of `parts` batches each; returns the step's results.

        The replicas take the batches of an update in turn.
        """
        elements = iter(self._distributed(list(itertools.chain(*updates))))
        return [
            self.step(*[next(elements) for _ in range(self._accumulate)])
            for _ in updates
        ]


def difference(first, second):
    """Returns the largest difference of any weight on any replica."""
    return max(
        float(np.abs(first[name][0] - copy).max())
        for name in first
        if not name.startswith(("mean/", "square/"))
        for copy in second[name]
    )


def same_bits(first, second):
    """Whether two states are equal, bit for bit."""
    return all(first[n].tobytes() == second[n].tobytes() for n in first)


def compare(machine, reference, kind, seed=3):
    """Returns the difference after UPDATES updates."""
    random = np.random.default_rng(seed)
    updates = sentences(seed)
    states = []
    for one in (reference, machine):
        one.reset()
        one.train([split(pairs, one.parts, kind, random) for pairs in updates])
        states.append(one.state())
    return difference(*states)


def breaks(machine, cases, seed=5):
    """Breaks one part of an update, for each case.

    The update must change nothing, and the next one must equal that of a run
    without it.

    Args:
        machine: `Machine`.
        cases: pairs of a key of BREAKS and of the number of a part.

    Returns:
        A line for each case that fails.
    """
    random = np.random.default_rng(seed)
    updates = [
        split(pairs, machine.parts, "equal", random)
        for pairs in sentences(seed)[:3]
    ]
    machine.reset()
    machine.train(updates[:2])
    before = machine.state()
    machine.train(updates[2:])
    expected = machine.state()
    wrong = []
    for how, part in cases:
        broken = [dict(one) for one in updates[2]]
        broken[part]["inputs"] = np.copy(broken[part]["inputs"])
        broken[part]["inputs"][0, 0] = breakable.BREAKS[how]
        machine.reset()
        *_, result = machine.train([*updates[:2], broken])
        if result["is_made"] or not same_bits(before, machine.state()):
            wrong.append(f"{how}, part {part}: not skipped")
        machine.train(updates[2:])
        if not same_bits(expected, machine.state()):
            wrong.append(f"{how}, part {part}: the next update differs")
    return wrong


def all_cases(parts):
    """Returns every way to break an update of so many parts."""
    return list(itertools.product(breakable.BREAKS, range(parts)))


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    numbers, reductions = [1, 2, 4], [None]
    if (gpus := len(tf.config.list_physical_devices("GPU"))) > 1:
        numbers = [n for n in numbers if n <= gpus]
    else:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * max(numbers),
        )
        reductions = [
            tf.distribute.ReductionToOneDevice,
            tf.distribute.HierarchicalCopyAllReduce,
        ]
    failures = 0
    print("replicas batches clip  " + "".join(f"{k:>10}" for k in KINDS))
    machines = []
    for clip, reduction in itertools.product((0.0, 0.3), reductions):
        hparams = HPARAMS.replace(clip_grad_norm=clip)
        reference = Machine(1, 1, hparams)
        for replicas, number in itertools.product(numbers, numbers):
            machine = Machine(replicas, number, hparams, reduction=reduction)
            machines.append((f"{replicas:8}{number:8}{clip:5}  ", machine))
            found = [compare(machine, reference, k) for k in KINDS]
            failures += sum(not value <= TOLERANCE for value in found)
            cells = "".join(f"{value:10.1e}" for value in found)
            print(machines[-1][0] + cells, flush=True)
    print("\nreplicas batches clip  one part of an update broken")
    for label, machine in machines:
        cases = all_cases(machine.parts)
        wrong = breaks(machine, cases)
        failures += len(wrong)
        text = "; ".join(wrong) or f"{len(cases)} of {len(cases)} skipped"
        print(label + text, flush=True)
    print(f"\n{failures} failures" if failures else "\nall as expected")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
