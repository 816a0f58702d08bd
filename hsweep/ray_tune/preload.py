"""The modules that worker processes of a local Ray import as they start, before there is work.

Their variables are those of the process that started Ray (``worker_environment``). Where something
goes wrong here Ray only logs it; it is met again where a process gets its first trial.
"""

import gc

# What is imported stays, so looking for garbage meanwhile costs a tenth of the time for nothing.
gc.disable()
try:
    from hsweep.workspace import set_up_worker

    set_up_worker()
    import hsweep.ray_tune.actor
    import hsweep.training.loop  # noqa: F401
finally:
    gc.freeze()
    gc.enable()
