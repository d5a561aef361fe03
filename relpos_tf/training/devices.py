"""The devices that train: one, or several as replicas."""

import os
import pathlib
import platform
import re
import timeit

import tensorflow as tf

from relpos_tf import errors
from relpos_tf.training import cluster
from relpos_tf.utils import signals


def strategy(
    worker_gpu: int = 0, several_hosts: bool = False
) -> tf.distribute.Strategy:
    """Returns the strategy for this machine, or for the hosts of TF_CONFIG.

    With several hosts, call it before TensorFlow computes anything; it returns
    once all hosts are connected.

    Args:
        worker_gpu: int. Number of GPUs to use on each host; 0: all that are
            visible. Without GPUs, each logical CPU is a replica on one host;
            each of several hosts is one replica.
        several_hosts: bool. False: use this host only, and remove TF_CONFIG
            from the environment.

    Returns:
        TensorFlow's default strategy for one device, `MirroredStrategy` for
        several, `MultiWorkerMirroredStrategy` for several hosts.

    Raises:
        UserError: fewer GPUs are visible than asked for; TF_CONFIG is invalid;
            or another host did not connect.
    """
    # Physical devices: listing logical devices would start TensorFlow.
    gpus = tf.config.list_physical_devices("GPU")
    if worker_gpu > len(gpus):
        raise errors.UserError(
            f"--worker_gpu must be at most {len(gpus)}, the GPUs that "
            f"TensorFlow sees. Received: {worker_gpu}."
        )
    if worker_gpu:
        tf.config.set_visible_devices(gpus[:worker_gpu], "GPU")
    if not several_hosts:
        os.environ.pop("TF_CONFIG", None)  # TensorFlow reads it, too.
    elif hosts := cluster.from_environment():
        return _of_several_hosts(hosts)
    devices = [d.name for d in tf.config.list_logical_devices("GPU")]
    reduction = None  # NCCL, which CPUs do not have
    if not devices:
        devices = [d.name for d in tf.config.list_logical_devices("CPU")]
        reduction = tf.distribute.ReductionToOneDevice()
    if len(devices) == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def _of_several_hosts(hosts: cluster.Cluster) -> tf.distribute.Strategy:
    """Waits for the other hosts and connects to them."""
    cluster.await_hosts(hosts)
    try:
        result = tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, RuntimeError) as error:
        cause = str(error).partition("\n")[0].rstrip(".")
        raise errors.UserError(
            f"TensorFlow cannot connect {hosts.name(hosts.index)} to the other "
            f"hosts: {cause}. See their messages."
        ) from error
    signals.take_back()
    return result


def description() -> str:
    """Returns how many devices train, and their name."""
    if gpus := tf.config.list_logical_devices("GPU"):
        physical = tf.config.list_physical_devices("GPU")[0]
        details = tf.config.experimental.get_device_details(physical)
        return f"{len(gpus)} x {details.get('device_name', 'GPU')}"
    file = pathlib.Path("/proc/cpuinfo")  # on Linux
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    found = re.search(r"model name\s*: (.*)", text)
    name = found[1] if found else platform.processor() or platform.machine()
    return f"{os.cpu_count()} cores of {name}"


def is_bfloat16_faster() -> bool:
    """Returns whether what trains is faster in bfloat16 than in float32.

    A processor is timed, because its flags do not say it: an Intel Xeon with
    `avx512_bf16` and without AMX takes 1.5 times as long for a product.
    """
    if tf.config.list_logical_devices("GPU"):
        gpu = tf.config.list_physical_devices("GPU")[0]
        details = tf.config.experimental.get_device_details(gpu)
        # NVIDIA's GPUs have arithmetic in bfloat16 from Ampere on.
        return details.get("compute_capability", (8, 0)) >= (8, 0)
    # Equal times, as where bfloat16 is emulated, vary by some percent.
    return _seconds(tf.bfloat16) < 0.8 * _seconds(tf.float32)


def _seconds(dtype):
    """Returns the least time of a product as in a small feed-forward layer."""
    x, kernel = tf.ones([2048, 256], dtype), tf.ones([256, 512], dtype)

    def multiply():
        tf.matmul(x, kernel).numpy()

    return min(timeit.repeat(multiply, repeat=20, number=1))
