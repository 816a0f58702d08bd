"""Can a BERT trade depth for heads?

Question. "Leaner Transformers: More Heads, Less Depth", table 1, pre-trains a Crammed BERT of width
768 for a day on one GPU and fine-tunes it on GLUE: 16 layers of 12 heads (119.6 M parameters)
average 78.6, and so do 10 layers of 24 heads, 32 wide (84.2 M).

What the published run tells. Equal time is not equal tokens: learning rate and batch follow the
clock, so the leaner model, which is faster, sees more text. `paper` has equal time, `equal_tokens`
what its name says; `tokens_seen` stands beside every result. One seed is published, and averages
of one model differ by some tenths between seeds.

Expectation. At equal time the lean shape is no worse; at equal tokens the deep one is ahead.

Seen. `quick`, at one rate: one layer is neither established as no worse than two by 0.05 nats nor
as worse; it would take 15 to 17 seeds of each. `tuned`, at equal tokens, each shape at its own rate
(0.0079 of 0.0025 to 0.025 for all of them) and three seeds that did not choose it: four layers end
at 2.28 nats (2 heads) and 2.31 (4 heads), two at 2.33 and 2.35, one at 2.40 and 2.36, with a
standard deviation of 0.06 between seeds. By the statistics of that time no cheaper shape is
established as no worse by 0.05 nats, nor shown to be worse by more: the four are behind by 0.05 to
0.12. It would take 34 to 38 seeds of each. A shorter budget misleads: after 300 steps all four are
established as no worse, since nothing has been learned that depth could help; after 600 the seeds
of one shape lie up to 0.7 nats apart. So a lean answer from early training says little here.
`glue`, also at equal tokens: averages of 0.539 and 0.536 with one layer (2 and 8 heads), 0.548 and
0.555 with four; one layer saves 42 % and is not established as no worse by two points (3 seeds, an
equal shape would be found with probability 0.53). STS-B (0.14 to 0.21) tells the depths apart, F1
on MRPC is about that of a constant answer.

Choices. All documents form one line of tokens, cut into sequences of 128; a quarter of each is
masked. Learning rates, decay, clipping and the shape of the schedule are the published ones. Not
the published ones: batches of 512 sequences throughout (published: up to 8,192, which takes
gradients of several passes; they grow over the first 60 % of the time), Adam's eps (1e-8 for
1e-12), the text (MiniPile, a million documents of the Pile, here repeated as often as the time
allows; any other by `--set data=PATH`), and no filter of texts that tokenise badly. GLUE's average
is over eight tasks, without WNLI; `glue` has three of them, since models this small stayed at
chance on CoLA and RTE, with at most 4,000 examples each and cut to 32 tokens.

Cost. `quick`: 24 trials of 1,000 steps, 2 min 39 s on two cores. `tuned`, masked tokens alone: the
docstrings of Python's standard library, or any text by `--set data=PATH`; 150 of 270 trials are
trained, an hour of one core. `glue`: 12 trials, 20 minutes on two busy cores. `paper`: twelve days
of a GPU, fine-tuning not counted (not measured).

    hsweep run crammed_bert
    hsweep run crammed_bert --preset glue --set glue=PATH
    hsweep plan crammed_bert --preset paper
"""

from dataclasses import replace

from hsweep import Point, Recipe, Resources, Sweep, grid, lean, preset, seconds, steps, tuned
from models.encoder import CrammedBert, crammed_bert
from tasks.language.glue import Glue
from tasks.language.glue_tasks import EIGHT_TASKS
from tasks.language.masked_text import MaskedText

MASKED = 0.25
PUBLISHED_TOKENS = 32768
DAY = 24 * 60 * 60


def small_text(point: Point) -> MaskedText:
    """A text and a tokenizer trained on it."""
    return MaskedText(
        data=point.data,
        seq_len=point.seq_len,
        tokenizer=point.tokenizer,
        vocab_size=point.vocab_size,
        masked_share=MASKED,
        max_validation=512,
        max_train_eval=256,
    )


def small_glue(point: Point) -> Glue:
    """A text, and some tasks of GLUE with a recipe that suits models this small."""
    return Glue(
        pretraining=small_text(point),
        data=point.glue,
        tasks=tuple(point.glue_tasks.split("+")),
        epochs=3,
        lr=1e-3,
        seq_len=point.seq_len,
        max_train=4_000,
    )


def small_encoder(point: Point) -> CrammedBert:
    """The published model's build, much narrower."""
    return CrammedBert(
        embed_dim=point.embed_dim,
        depth=point.depth,
        heads=point.heads,
        head_dim=point.head_dim,
        seq_len=point.seq_len,
        vocab_size=point.vocab_size,
        predicted_share=MASKED,
    )


def small_recipe(point: Point) -> Recipe:
    """The published optimiser; the rate is held until it falls, so that budgets share a
    beginning."""
    return replace(SMALL_RECIPE, lr=point.lr, schedule="wsd", warmup_fraction=0.0, warmup_steps=120)


def published_task(point: Point) -> Glue:
    """MiniPile, and GLUE without WNLI, fine-tuned as published."""
    text = MaskedText(
        data=point.data,
        tokenizer=point.tokenizer,
        vocab_size=PUBLISHED_TOKENS,
        masked_share=MASKED,
        max_validation=4_000,
        max_train_eval=1_000,
    )
    return Glue(pretraining=text, data=point.glue, tasks=EIGHT_TASKS)


def published_encoder(point: Point) -> CrammedBert:
    """Width 768; the heads share it."""
    return crammed_bert(depth=point.depth, heads=point.heads)


TEXT = grid(data="docstrings", tokenizer=None)
SHORT = TEXT * grid(seq_len=16, vocab_size=512, embed_dim=64)
RATES = grid(lr=tuned(2.5e-3, 2.5e-2))
LONGER = TEXT * grid(seq_len=32, vocab_size=2048, embed_dim=64)
SMALL_RECIPE = Recipe(
    lr=8e-3,
    batch_size=128,
    betas=(0.9, 0.98),
    weight_decay=0.01,
    warmup_fraction=0.1,
    schedule="linear",
    clip_norm=0.5,
)
PUBLISHED_RECIPE = Recipe(
    lr=1e-3,
    batch_size=512,
    betas=(0.9, 0.98),
    weight_decay=0.01,
    # From a quarter of the rate up to all of it at three quarters of the time, then down to 0.
    warmup_fraction=0.75,
    warmup_lr=2.5e-4,
    schedule="linear",
    clip_norm=0.5,
    precision="bfloat16",
)
PUBLISHED_SPACE = grid(depth=[16, 10], heads=[12, 24]) * grid(
    data="JeanKaddour/minipile", glue="nyu-mll/glue", tokenizer=None
)
PUBLISHED_QUESTION = lean(baseline={"heads": 12, "depth": 16}, margin=0.005)

LADDER = steps(1200, ladder=[300, 600, 1200])
FOUR_LAYERS = lean(baseline={"heads": 2, "depth": 4}, margin=0.05, scale="loss")

SWEEP = Sweep(
    name="crammed_bert",
    space=grid(heads=[2, 4], depth=[1, 2], head_dim=None) * SHORT * grid(lr=8e-3),
    task=small_text,
    model=small_encoder,
    recipe=small_recipe,
    metric="masked_loss",
    goal="min",
    budget=steps(1000, ladder=[500, 1000]),
    replicates=3,
    question=lean(baseline={"heads": 2, "depth": 2}, margin=0.05, scale="loss"),
    presets={
        "tuned": preset(
            note="up to four layers, each shape at the best of three learning rates, over three "
            "budgets",
            space=grid(heads=[2, 4], depth=[1, 2, 4], head_dim=None) * SHORT * RATES,
            budget=LADDER,
            replicates=5,
            question=FOUR_LAYERS,
        ),
        "decoupled": preset(
            note="heads 16 wide however many there are: more heads are more parameters",
            space=grid(heads=[2, 4, 8], depth=[1, 2, 4], head_dim=16) * SHORT * RATES,
            budget=LADDER,
            replicates=5,
            question=FOUR_LAYERS,
        ),
        "glue": preset(
            note="pre-training and fine-tuning in little, on three tasks of GLUE that a model this "
            "small learns something of: give a local copy by `--set glue=PATH`, or set "
            "HSWEEP_HUB=1 to have it downloaded; `--set glue_tasks=cola+rte` for others",
            space=grid(heads=[2, 8], depth=[1, 4], head_dim=None)
            * LONGER
            * grid(glue="nyu-mll/glue", glue_tasks="sst2+mrpc+stsb"),
            task=small_glue,
            recipe=replace(SMALL_RECIPE, batch_size=64),
            metric="glue_average",
            goal="max",
            budget=steps(600, report_every=200),
            replicates=3,
            question=lean(baseline={"heads": 2, "depth": 4}, margin=0.02),
        ),
        "paper": preset(
            note="the published shapes and those between, a day of one GPU each, three seeds",
            space=PUBLISHED_SPACE,
            task=published_task,
            model=published_encoder,
            recipe=PUBLISHED_RECIPE,
            metric="glue_average",
            goal="max",
            budget=seconds(DAY, report_every=DAY // 24),
            replicates=3,
            resources=Resources(cpus=8, gpus=1),
            question=PUBLISHED_QUESTION,
        ),
        "equal_tokens": preset(
            note="as `paper`, but 6.6 billion tokens for every shape",
            space=PUBLISHED_SPACE,
            task=published_task,
            model=published_encoder,
            recipe=PUBLISHED_RECIPE,
            metric="glue_average",
            goal="max",
            budget=steps(100_000, report_every=5_000),
            replicates=3,
            resources=Resources(cpus=8, gpus=1),
            question=PUBLISHED_QUESTION,
        ),
        "smoke": preset(
            note="to see that everything works; far too short for an answer",
            space=grid(heads=[2, 8], depth=[1], head_dim=None) * SHORT,
            recipe=SMALL_RECIPE,
            budget=steps(4),
            replicates=1,
            question=lean(baseline={"heads": 8}, margin=0.05, scale="loss"),
        ),
    },
)
