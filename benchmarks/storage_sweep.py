"""Trials of one task that train nothing, each of a model of its own: the record is what counts.

hsweep run benchmarks/storage_sweep.py --set num_points=10000
"""

from dataclasses import replace

from benchmarks import overhead_sweep

SWEEP = replace(overhead_sweep.SWEEP, name="storage", task=overhead_sweep.Nothing(0.5))
