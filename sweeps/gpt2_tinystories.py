"""Can a small GPT-2 trade depth for heads?

Question. "Leaner Transformers: More Heads, Less Depth", table 2, trains GPT-2 of width 512 on
TinyStories and reports a validation loss of 2.47 nats with 12 layers of 12 heads (89.2 M
parameters), and of 2.41 with 4 layers of 16 heads (64.2 M). Is the shallow model no worse?

What the published run tells. It sees 16.4 M tokens, drawn from the first 12,000 stories: some 2.5 M
different tokens, for 89 M parameters. `tokens_seen`, `tokens_available` and `train_loss` stand
beside every result here, since a smaller model may win there by over-fitting less. `full` asks the
same of one pass over all stories.

Expectation. Fewer layers are no worse while a text is small or training short. On all stories the
deep model should be ahead, by how much is the question.

Seen. `quick`, at one rate: 8 heads in 1 layer are ahead of 4 heads in 4 layers by 0.47 nats and
save 32 % of the parameters (Holm p < 0.001, 3 seeds). `tuned`, each shape at its best of three
rates (0.004 for all of them, inside the range): one layer ends at 4.24 to 4.26 nats, two at 4.46,
four at 4.59, whatever the heads: 2 heads in 1 layer save 32 % of the parameters. Half a million
tokens are two passes over the docstrings, and deep models are behind because they learn more slowly
at first, not because they over-fit: their training loss is higher too. The answer is not known to
be settled: one layer leads by 0.35 nats after 125 steps, 0.46 after 250 and 0.35 after 500, and the
four layers may yet overtake it.

Choices. 12 heads do not divide 512: as in the published code they are 42 wide. The published
weight decay of 0.01 also falls on norms and biases; here these are exempt. The text is all of the
split, not 200 random batches of it. `paper` computes in float32, since no precision is published,
though attention has no flash kernel for it; `full` repeats no run and takes bfloat16.

Cost. `quick`: 54 trials of 250 steps, 2 min 55 s on two cores. `tuned`: the docstrings of Python's
standard library, or any text by `--set data=PATH`; 32 minutes of one core that had other work as
well. `paper`: 27 trials of 16.4 M tokens, 6.3e15 FLOPs for the deep baseline, minutes each on a GPU
(not measured). `full`: some 2e17 FLOPs for it.

    hsweep run gpt2_tinystories
    hsweep plan gpt2_tinystories --preset paper
"""

from hsweep import (
    Point,
    Recipe,
    Resources,
    Sweep,
    epochs,
    grid,
    lean,
    preset,
    steps,
    tuned,
)
from models.decoder import Decoder, gpt2_tiny_stories
from tasks.language.stories import Stories, published_stories

STORIES = grid(data="roneneldan/TinyStories", tokenizer="openai-community/gpt2")
GPT2_TOKENS = 50257
SEQUENCES_TO_EVALUATE = 4_000


def small_task(point: Point) -> Stories:
    """A text and a tokenizer trained on it."""
    return Stories(
        data=point.data,
        seq_len=point.seq_len,
        tokenizer=point.tokenizer,
        vocab_size=point.vocab_size,
        max_validation=192,
        max_train_eval=96,
    )


def small_decoder(point: Point) -> Decoder:
    """The published model's build, much narrower."""
    return Decoder(
        embed_dim=point.embed_dim,
        depth=point.depth,
        heads=point.heads,
        head_dim=point.head_dim,
        seq_len=point.seq_len,
        vocab_size=point.vocab_size,
    )


def small_recipe(point: Point) -> Recipe:
    """The rate is held until it falls, so that budgets share a beginning."""
    return Recipe(
        lr=point.lr,
        batch_size=16,
        weight_decay=0.01,
        betas=(0.9, 0.95),
        schedule="wsd",
        warmup_steps=50,
        clip_norm=1.0,
    )


def published_task(point: Point) -> Stories:
    """The first 12,000 stories, in random windows of 64 tokens."""
    return published_stories(
        data=point.data, tokenizer=point.tokenizer, max_train_eval=SEQUENCES_TO_EVALUATE
    )


def all_stories(point: Point) -> Stories:
    """All stories, packed into sequences of 64 tokens."""
    return Stories(
        data=point.data,
        seq_len=64,
        tokenizer=point.tokenizer,
        vocab_size=GPT2_TOKENS,
        max_validation=SEQUENCES_TO_EVALUATE,
        max_train_eval=SEQUENCES_TO_EVALUATE,
    )


def published_decoder(point: Point) -> Decoder:
    """Width 512; heads of 512 / heads, rounded down."""
    return gpt2_tiny_stories(depth=point.depth, heads=point.heads, dropout=point.dropout)


PUBLISHED_SHAPES = grid(heads=[8, 12, 16], depth=[4, 8, 12])
PUBLISHED_RECIPE = Recipe(lr=3e-4, batch_size=128, weight_decay=0.01, schedule="constant")
SMALL = grid(data="docstrings", tokenizer=None, vocab_size=2048, seq_len=64, embed_dim=64)
RATES = grid(lr=tuned(1.25e-3, 1.25e-2))
LADDER = steps(500, ladder=[125, 250, 500])

SWEEP = Sweep(
    name="gpt2_tinystories",
    space=grid(heads=[2, 4, 8], depth=[1, 2, 4], head_dim=None) * SMALL * grid(lr=4e-3),
    task=small_task,
    model=small_decoder,
    recipe=small_recipe,
    metric="validation_loss",
    goal="min",
    budget=steps(250, ladder=[125, 250]),
    replicates=3,
    question=lean(baseline={"heads": 4, "depth": 4}, margin=0.05, scale="loss"),
    presets={
        "tuned": preset(
            note="each shape at the best of three learning rates, over three budgets",
            space=grid(heads=[2, 4, 8], depth=[1, 2, 4], head_dim=None) * SMALL * RATES,
            budget=LADDER,
            replicates=5,
        ),
        "decoupled": preset(
            note="heads 16 wide however many there are: more heads are more parameters",
            space=grid(heads=[2, 4, 8], depth=[1, 2, 4], head_dim=16) * SMALL * RATES,
            budget=LADDER,
            replicates=5,
        ),
        "paper": preset(
            note="the published run with its two shapes and those between: 2,000 batches of 128 "
            "windows of 64 tokens, which over-fit; GPT-2's tokenizer and TinyStories by "
            "`--set tokenizer=PATH --set data=PATH`, or downloaded with HSWEEP_HUB=1",
            space=PUBLISHED_SHAPES * STORIES * grid(dropout=0.2),
            task=published_task,
            model=published_decoder,
            recipe=PUBLISHED_RECIPE,
            budget=steps(2000, report_every=250),
            replicates=3,
            resources=Resources(cpus=4, gpus=1),
            question=lean(baseline={"heads": 12, "depth": 12}, margin=0.02, scale="loss"),
        ),
        "full": preset(
            note="the same shapes on one pass over all stories, without dropout",
            space=PUBLISHED_SHAPES * STORIES * grid(dropout=0.0),
            task=all_stories,
            model=published_decoder,
            recipe=Recipe(
                lr=6e-4,
                batch_size=128,
                weight_decay=0.1,
                betas=(0.9, 0.95),
                warmup_fraction=0.02,
                clip_norm=1.0,
                precision="bfloat16",
            ),
            budget=epochs(1),
            replicates=3,
            resources=Resources(cpus=4, gpus=1),
            question=lean(baseline={"heads": 12, "depth": 12}, margin=0.02, scale="loss"),
        ),
        "smoke": preset(
            note="to see that everything works; far too short for an answer",
            space=grid(heads=[2, 8], depth=[1], head_dim=None) * SMALL,
            recipe=Recipe(lr=4e-3, batch_size=16),
            budget=steps(4),
            replicates=1,
            question=lean(baseline={"heads": 8}, margin=0.05, scale="loss"),
        ),
    },
)
