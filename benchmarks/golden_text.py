"""A small language model with dropout, whose final loss is held to the bit.

hsweep run benchmarks/golden_text.py --runner inline
"""

from hsweep import Recipe, Sweep, grid, steps
from models.decoder import Decoder
from tasks.language.stories import Stories

SWEEP = Sweep(
    name="golden_text",
    space=grid(heads=[2], depth=[2]),
    task=Stories(seq_len=32, vocab_size=512, max_validation=64, max_train_eval=32),
    model=lambda point: Decoder(
        embed_dim=32,
        depth=point.depth,
        heads=point.heads,
        seq_len=32,
        vocab_size=512,
        dropout=0.2,
    ),
    recipe=Recipe(lr=4e-3, batch_size=16, accumulate=2, weight_decay=0.01, warmup_steps=10),
    metric="validation_loss",
    goal="min",
    budget=steps(60, report_every=20),
    replicates=2,
)
