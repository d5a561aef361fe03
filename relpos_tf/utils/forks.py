"""Refuses to compute in a fork of a process that has computed.

A fork has one thread, whatever its parent had. TensorFlow and CTranslate2
divide their work among threads, so a call in the fork waits for ever.
"""

import os

from relpos_tf import errors

_process = None  # the id of the process that loaded a model first


def check():
    """Notes the first process that calls; refuses the forks of it.

    Raises:
        UserError: this process is a fork of the first one.
    """
    global _process
    if _process is None:
        _process = os.getpid()
    if _process != os.getpid():
        raise errors.UserError(
            "A model must be loaded after a fork, because TensorFlow's "
            "threads are not in the new process, which would wait for ever. "
            f"Received: a model loaded in process {_process} before the fork "
            f"of process {os.getpid()}. Load it in each process: gunicorn "
            "without --preload, multiprocessing with the method spawn."
        )
