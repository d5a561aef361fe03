"""Trains 2,000 steps of ragged lengths and measures the memory.

    python -m tools.memory

All batches differ in shape. Prints, for one and two replicas with and
without accumulation, the resident memory after a quarter of the steps and
after all, and how often each function was traced. Linux only.
"""

import argparse
import os
import sys

import numpy as np
import tensorflow as tf

from tests.campaigns import replicas

CASES = ((1, 1), (1, 2), (2, 1), (2, 2))
MOST_GROWTH = 1.05
HPARAMS = replicas.HPARAMS.replace(
    hidden_size=32, filter_size=64, layer_prepostprocess_dropout=0.1
)


def resident_megabytes():
    """Returns the memory of this process that is not swapped out."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def ragged_batches(seed, number):
    """Yields batches of 1 to 12 rows and of 1 to 60 ids on each side."""
    random = np.random.default_rng(seed)
    for _ in range(number):
        rows, source, target = random.integers(1, [13, 61, 61])
        yield {
            "inputs": random.integers(2, 19, (rows, source), np.int32),
            "targets": random.integers(2, 19, (rows, target), np.int32),
        }


def traces(step):
    """Returns how often each function of a step was traced."""
    functions = [getattr(step, n, None) for n in ("accumulate", "update")]
    return [
        function.experimental_get_tracing_count()
        for function in (functions if functions[0] else [step])
    ]


def soak(count, number, steps):
    """Returns megabytes after each quarter of the steps, and the traces."""
    machine = replicas.Machine(count, number, HPARAMS)
    megabytes = []
    for quarter in range(4):
        batches = ragged_batches(quarter, steps // 4 * machine.parts)
        for _ in range(steps // 4):
            machine.train([[next(batches) for _ in range(machine.parts)]])
        megabytes.append(resident_megabytes())
    return megabytes, traces(machine.step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    steps = parser.parse_args().steps
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    failures = 0
    print(
        f"replicas batches  MB after {steps // 4} steps  after {steps}"
        "  growth  traces"
    )
    for count, number in CASES:
        megabytes, found = soak(count, number, steps)
        growth = megabytes[-1] / megabytes[0]
        failures += growth > MOST_GROWTH or set(found) != {1}
        print(
            f"{count:8}{number:8}{megabytes[0]:20.0f}{megabytes[-1]:16.0f}"
            f"{growth:10.3f}  {', '.join(map(str, found))}",
            flush=True,
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
