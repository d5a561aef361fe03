"""The devices that train: one, or several as replicas."""

from collections.abc import Mapping

import tensorflow as tf

from relpos_tf import errors
from relpos_tf.training import cluster
from relpos_tf.training import rendezvous
from relpos_tf.utils import signals


def strategy(
    worker_gpu: int = 0, launch_config: Mapping[str, str] | None = None
) -> tf.distribute.Strategy:
    """Returns the strategy for this machine, or for the hosts of TF_CONFIG.

    With several hosts, call it before TensorFlow computes anything; it returns
    once all hosts are connected.

    Args:
        worker_gpu: int. Number of GPUs to use on each host; 0: all that are
            visible. Without GPUs, each logical CPU is a replica on one host;
            each of several hosts is one replica.
        launch_config: Values by name that must be equal on all hosts. None:
            use this host only, whatever TF_CONFIG says.

    Returns:
        TensorFlow's default strategy for one device, `MirroredStrategy` for
        several, `MultiWorkerMirroredStrategy` for several hosts.

    Raises:
        UserError: fewer GPUs are visible than asked for; TF_CONFIG is invalid;
            or another host did not connect.
    """
    hosts = cluster.from_environment()
    if hosts is not None and launch_config is not None:
        return _of_several_hosts(hosts, worker_gpu, launch_config)
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    devices = [d.name for d in tf.config.list_logical_devices(kind)]
    if worker_gpu:
        gpus = len(devices) if kind == "GPU" else 0
        _check_number(worker_gpu, gpus)
        if kind == "GPU":
            devices = devices[:worker_gpu]
    if len(devices) == 1:
        return tf.distribute.get_strategy()
    reduction = None  # NCCL, which CPUs do not have
    if kind == "CPU":
        reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def _of_several_hosts(
    hosts: cluster.Cluster, worker_gpu: int, launch_config: Mapping[str, str]
) -> tf.distribute.Strategy:
    """Waits for the other hosts and connects to them."""
    # Physical devices: listing logical devices would start TensorFlow.
    gpus = tf.config.list_physical_devices("GPU")
    if worker_gpu:
        _check_number(worker_gpu, len(gpus))
        gpus = gpus[:worker_gpu]
        tf.config.set_visible_devices(gpus, "GPU")
    cpu = tf.config.list_physical_devices("CPU")[0]
    if len(tf.config.get_logical_device_configuration(cpu) or "1") > 1:
        raise errors.UserError(
            "--num_logical_cpus is for one host. Received: a TF_CONFIG with "
            "several."
        )
    rendezvous.await_hosts(
        hosts, {**launch_config, "the number of GPUs": str(len(gpus))}
    )
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


def _check_number(worker_gpu: int, gpus: int) -> None:
    """Raises if there are fewer GPUs; 1 may also mean the CPU."""
    if worker_gpu > max(gpus, 1):
        raise errors.UserError(
            f"--worker_gpu must be at most {gpus}, the GPUs that "
            f"TensorFlow sees. Received: {worker_gpu}."
        )
