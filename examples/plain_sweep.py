"""How many heads does a plain script need on handwritten digits?

Question. `plain_script.py` trains a small transformer on rows of digits and knows nothing of
sweeps. Do more heads help it at the same width?

Expectation. One head is a little worse than two or four; the width matters more than the heads.

Seen, with the script called by hand for seeds 0 to 2: 97.2 to 97.3 % at width 16 whatever the
heads; at width 32 97.1, 98.1 and 97.9 % with 1, 2 and 4. Seeds differ by as much (standard
deviation 0.3 to 1.0), so neither is shown.

Cost. 18 trials of 10 epochs, eight seconds each on one busy core.

    hsweep run examples/plain_sweep.py
"""

from hsweep import Asha, Sweep, command, epochs, grid, json_lines

SWEEP = Sweep(
    name="plain-script",
    space=grid(heads=[1, 2, 4], width=[16, 32]),
    train=command(
        "python plain_script.py --heads {heads} --width {width}"
        " --epochs {budget} --seed {seed} --out {folder} {resume}",
        resume="--resume {folder}/checkpoint.pt",
        metrics=json_lines("log.jsonl", unit="epoch"),
    ),
    metric="top1",
    goal="max",
    budget=epochs(10),
    replicates=3,
    early_stopping=Asha(grace=3),
)
