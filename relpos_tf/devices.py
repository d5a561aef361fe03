"""Which devices train: one, or several as replicas of each other."""

import tensorflow as tf

from relpos_tf import errors


def strategy(worker_gpu: int = 0) -> tf.distribute.Strategy:
    """Returns the strategy for this machine.

    Args:
        worker_gpu: int. Number of GPUs to use; 0: all that are visible. On a
            machine without GPUs every logical CPU is a replica.

    Returns:
        TensorFlow's default strategy for one device, `MirroredStrategy` for
        more.

    Raises:
        UserError: fewer GPUs are visible than asked for.
    """
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    devices = [d.name for d in tf.config.list_logical_devices(kind)]
    if worker_gpu:
        gpus = len(devices) if kind == "GPU" else 0
        if worker_gpu > max(gpus, 1):
            raise errors.UserError(
                f"--worker_gpu must be at most {gpus}, the GPUs that "
                f"TensorFlow sees. Received: {worker_gpu}."
            )
        if kind == "GPU":
            devices = devices[:worker_gpu]
    if len(devices) == 1:
        return tf.distribute.get_strategy()
    reduction = None  # NCCL, which CPUs do not have
    if kind == "CPU":
        reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
