import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from passage_files import passage, write_data, write_encoder
from task_contract import CPU, TaskContract, measured, same
from torch import Tensor, nn

from hsweep.cli import main
from tasks.base import DataError, Task
from tasks.ranking.passage_pool import _Pool, candidates, judged
from tasks.ranking.passage_vectors import mean_vectors
from tasks.ranking.passages import Passages, load


class DotProduct(nn.Module):
    """Scores a candidate by its product with the query, under a learned diagonal."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, x: Tensor) -> Tensor:
        query, passage = x.chunk(2, dim=2)
        return (query * self.scale * passage).sum(2)


class FirstIsBest(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return -torch.arange(x.shape[1], dtype=torch.float32).expand(x.shape[:2])


class Constant(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros(x.shape[:2])


@pytest.fixture
def encoder(tmp_path: Path) -> str:
    return write_encoder(tmp_path / "bert")


@pytest.fixture
def data(tmp_path: Path) -> str:
    texts = {f"p{number}": passage(number) for number in range(40)}
    queries = {f"q{number}": " ".join(passage(number).split()[:2]) for number in range(30)}
    rows = [(f"q{number}", f"p{number}", 1) for number in range(30)]
    return write_data(tmp_path / "passages", texts, queries, {"train": rows[:24], "dev": rows[24:]})


@pytest.fixture
def small(data: str, encoder: str) -> Passages:
    return Passages(seq_len=4, data=data, encoder=encoder, mined=6)


class TestPassages(TaskContract):
    @pytest.fixture
    def task(self, small: Passages) -> Task:
        return small

    @pytest.fixture
    def variant(self, small: Passages) -> Task:
        return dataclasses.replace(small, max_tokens=3)

    @pytest.fixture
    def model(self, task: Task) -> nn.Module:
        return DotProduct(8)


def test_candidates_are_the_positive_and_the_best_ranked_others(
    tmp_path: Path, encoder: str
) -> None:
    texts = {
        "answer": "worda wordb wordc",
        "twin": "WordA  wordb wordc",  # the same text but for case and spaces
        "also": "wordb wordx",  # judged relevant as well
        "near": "worda wordy wordz",
        "nearer": "worda wordb wordy",
        "far": "wordm wordn wordo",
        "farther": "wordp wordq wordr",
    }
    judgements = [("q", "answer", 1), ("q", "also", 1), ("q", "far", 0), ("r", "far", 1)]
    folder = write_data(
        tmp_path / "data", texts, {"q": "worda wordb", "r": "wordm"}, {"train": judgements}
    )
    task = Passages(seq_len=3, data=folder, encoder=encoder, mined=4, held_out=0.5)
    found = candidates(task, task.mining_digest())
    names = {
        vector.tobytes(): name
        for name, vector in zip(
            texts,
            mean_vectors(encoder, list(texts.values()), max_tokens=128, segment=1),
            strict=True,
        )
    }
    negatives = [names[found.passages[row].tobytes()] for row in found.negatives[0]]
    assert negatives[:2] == ["nearer", "near"]
    assert set(negatives[2:]) == {"far", "farther"}
    assert names[found.passages[found.positives[0]].tobytes()] in ("answer", "twin")
    assert (found.num_train, len(found.queries)) == (1, 2)


def test_what_another_split_judges_relevant_is_no_negative_either(
    tmp_path: Path, encoder: str
) -> None:
    texts = {
        "answer": "worda wordb",
        "elsewhere": "worda wordb wordc",
        **{f"p{number}": passage(number) for number in range(6)},
    }
    judgements = {
        "train": [("q", "answer", 1), ("r", "p1", 1)],
        "dev": [("s", "p2", 1)],
        "test": [("q", "elsewhere", 1)],
    }
    queries = {"q": "worda wordb wordc", "r": "wordd", "s": "worde"}
    folder = write_data(tmp_path / "data", texts, queries, judgements)
    task = Passages(seq_len=2, data=folder, encoder=encoder, mined=3)
    assert judged(task).train["q"] == ("answer", "elsewhere")
    found = candidates(task, task.mining_digest())
    (vector,) = mean_vectors(encoder, [texts["elsewhere"]], max_tokens=128, segment=1)
    assert vector.tobytes() not in {found.passages[row].tobytes() for row in found.negatives[0]}


def test_shorter_lists_are_the_beginning_of_longer_ones_and_share_the_mining(
    small: Passages,
) -> None:
    longer = dataclasses.replace(small, seq_len=7)
    one, other = (load(task, task.fingerprint(), CPU) for task in (small, longer))
    assert torch.equal(one.lists, other.lists[:, :4])
    assert small.mining_digest() == longer.mining_digest()
    assert small.fingerprint() != longer.fingerprint()


def test_the_relevant_passage_lies_at_its_label_and_anywhere_in_the_list(small: Passages) -> None:
    tables = load(small, small.fingerprint(), CPU)
    data = small.open(data_seed=0, sampling_seed=5, batch_size=24, device=CPU)
    x, y = next(data.batches(0))
    assert x.shape == (24, 4, 16)
    assert len(set(y.tolist())) == 4
    positives = {tables.passages[row].numpy().tobytes() for row in tables.lists[:24, 0]}
    for example, label in zip(x, y, strict=True):
        assert example[label, 8:].numpy().tobytes() in positives
        assert (example[:, :8] == example[0, :8]).all()


def test_neither_a_constant_score_nor_a_fixed_position_counts_as_a_ranking(small: Passages) -> None:
    data = small.open(data_seed=0, sampling_seed=5, batch_size=8, device=CPU)
    constant = measured(data, Constant())
    assert (constant["top1"], constant["train_top1"]) == (0.0, 0.0)
    assert constant["mrr"] == pytest.approx(1 / 4)
    assert constant["validation_loss"] == pytest.approx(torch.tensor(4.0).log().item())
    assert measured(data, FirstIsBest())["train_top1"] < 0.6


@pytest.mark.parametrize("seed", range(5))
def test_top1_and_mrr_agree_with_ranking_by_hand(small: Passages, seed: int) -> None:
    task = dataclasses.replace(small, seq_len=25, mined=25)
    data = task.open(data_seed=0, sampling_seed=5, batch_size=8, device=CPU)
    model = DotProduct(8)
    torch.nn.init.normal_(model.scale, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        values = measured(data, model)
    tables = load(task, task.fingerprint(), CPU)
    for prefix, rows in (("", range(24, 30)), ("train_", range(24))):
        ranks = []
        for row in rows:
            query = tables.queries[row].double() * model.scale.detach().double()
            scores = [float(query @ tables.passages[p].double()) for p in tables.lists[row]]
            best_first = sorted(range(25), key=scores.__getitem__, reverse=True)
            ranks.append(best_first.index(0) + 1)
        # Mean reciprocal rank, cut off below ten, as MS MARCO's own script computes it.
        reciprocal = [1 / rank if rank <= 10 else 0 for rank in ranks]
        assert values[f"{prefix}top1"] == pytest.approx(ranks.count(1) / len(ranks))
        assert values[f"{prefix}mrr"] == pytest.approx(sum(reciprocal) / len(ranks))


def test_vectors_are_the_mean_of_the_models_own_embeddings(encoder: str) -> None:
    from transformers import AutoModel, AutoTokenizer

    texts = ["worda", "wordb wordc wordd worde", "wordz " * 50]
    vectors = mean_vectors(encoder, texts, max_tokens=16, segment=1)
    embeddings = AutoModel.from_pretrained(encoder).embeddings.eval()
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    for text, vector in zip(texts, vectors, strict=True):
        ids = tokenizer(text, truncation=True, max_length=16, return_tensors="pt")["input_ids"]
        expected = embeddings(ids, token_type_ids=torch.ones_like(ids))[0].mean(0)
        torch.testing.assert_close(torch.from_numpy(vector), expected.detach())


def test_where_data_and_encoder_lie_does_not_matter(small: Passages, tmp_path: Path) -> None:
    moved = shutil.copytree(small.data, tmp_path / "elsewhere")
    assert dataclasses.replace(small, data=str(moved)).fingerprint() == small.fingerprint()


def test_without_a_split_to_validate_on_the_last_queries_are_held_out(
    tmp_path: Path, encoder: str
) -> None:
    rows = [(f"q{number}", f"p{number}", 1) for number in range(8)]
    texts = {f"p{number}": passage(number) for number in range(20)}
    queries = {f"q{number}": passage(number) for number in range(8)}
    folder = write_data(tmp_path / "data", texts, queries, {"dev": rows})
    task = Passages(seq_len=2, data=folder, encoder=encoder, mined=1, held_out=0.25)
    split = judged(task)
    assert (list(split.train), list(split.validation)) == (
        [f"q{number}" for number in range(6)],
        ["q6", "q7"],
    )


def test_a_smaller_pool_keeps_every_answer(small: Passages) -> None:
    task = dataclasses.replace(small, pool=32, mined=5)
    found = candidates(task, task.mining_digest())
    assert len(found.passages) <= 32
    assert found.positives.max() < len(found.passages)


def test_fewer_passages_than_candidates_is_known_before_anything_is_mined(small: Passages) -> None:
    task = dataclasses.replace(small, seq_len=50, mined=49)
    with pytest.raises(DataError, match="has 40 passages, fewer than the 49 mined"):
        task.fingerprint()


def test_a_study_with_too_few_candidates_is_refused(small: Passages, tmp_path: Path) -> None:
    sweep = tmp_path / "finding.py"
    sweep.write_text(
        "from hsweep import Sweep, epochs, grid\n"
        "from models.ranker import Ranker\n"
        "from tasks.ranking.passages import Passages\n"
        f"DATA, ENCODER = {small.data!r}, {small.encoder!r}\n"
        "SWEEP = Sweep(name='finding', space=grid(heads=[1]), metric='top1', goal='max',\n"
        "    task=lambda p: Passages(seq_len=50, data=DATA, encoder=ENCODER, mined=49),\n"
        "    model=lambda p: Ranker(heads=1, head_dim=4, seq_len=50, input_dim=16, depth=1),\n"
        "    budget=epochs(1))\n"
    )
    arguments = ["run", str(sweep), "--runner", "inline"]
    done = CliRunner().invoke(main, arguments, env={"HSWEEP_HOME": str(tmp_path)})
    assert done.exit_code == 2, done.output
    assert "has 40 passages, fewer than the 49 mined negatives" in done.output
    assert "Traceback" not in done.output


def test_missing_pieces_are_named(small: Passages, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"encoder must be an existing folder.*nowhere"):
        dataclasses.replace(small, encoder="nowhere").fingerprint()
    with pytest.raises(DataError, match=r"does not exist.*HSWEEP_HUB=1"):
        dataclasses.replace(small, data="nowhere").fingerprint()
    with pytest.raises(DataError, match="must have a split 'test'; it has 'train', 'dev'"):
        dataclasses.replace(small, validation_split="test").fingerprint()
    empty = tmp_path / "no-model"
    empty.mkdir()
    (empty / "config.json").write_text("{}")
    with pytest.raises(DataError, match="has no hidden_size"):
        dataclasses.replace(small, encoder=str(empty)).input_dim()


@pytest.mark.parametrize(
    ("texts", "queries", "complaint"),
    [
        ({}, {}, "query 'q0'.*answered by passage 'gone', which the corpus lacks"),
        ({"gone": "wordx"}, {"q0": " "}, "query 'q0' has an empty text"),
        ({"gone": "wordx"}, {"q1": None}, "1 judged of the 2 have no text, for example .*'q1'"),
    ],
)
def test_data_that_do_not_belong_together_are_refused_by_name(
    tmp_path: Path, encoder: str, texts: dict[str, str], queries: dict[str, str], complaint: str
) -> None:
    rows = [("q0", "gone", 1), ("q1", "p1", 1)]
    all_texts = {f"p{number}": passage(number) for number in range(12)} | texts
    all_queries = {"q0": "worda", "q1": "wordb"} | queries
    kept = {name: text for name, text in all_queries.items() if text is not None}
    folder = write_data(tmp_path / "data", all_texts, kept, {"train": rows})
    task = Passages(seq_len=2, data=folder, encoder=encoder, mined=1, held_out=0.5)
    with pytest.raises(DataError, match=complaint):
        task.open(data_seed=0, sampling_seed=0, batch_size=1, device=CPU)


def test_a_model_must_score_every_candidate(small: Passages) -> None:
    data = small.open(data_seed=0, sampling_seed=5, batch_size=8, device=CPU)
    with pytest.raises(
        ValueError, match=r"one score a candidate, of shape \(8, 4\), not \(8, 4, 1"
    ):
        data.loss(nn.Linear(16, 16), next(data.batches(0)))


def test_no_real_negative_is_judged_relevant_or_has_the_text_of_what_is(
    shared_data: Callable[[str], str], encoder: str
) -> None:
    data = shared_data("msmarco")
    task = Passages(seq_len=4, data=data, encoder=encoder, mined=15)
    corpus, queries, judgements = (
        pq.read_table(next((Path(data) / name).glob("*.parquet"))).to_pylist()
        for name in ("corpus", "queries", "qrels")
    )
    texts = {row["_id"]: f"{row.get('title') or ''} {row['text']}" for row in corpus}
    relevant: dict[str, set[str]] = {}
    for row in judgements:
        if row["score"] > 0:
            relevant.setdefault(str(row["query-id"]), set()).add(str(row["corpus-id"]))
    train = judged(task).train
    pool, names = _Pool(task, train), list(train)[:200]
    asked = {str(row["_id"]): row["text"] for row in queries}
    negatives = pool.mine(names, [asked[name] for name in names])["negatives"]
    for name, rows in zip(names, negatives, strict=True):
        found = [corpus[row]["_id"] for row in rows]
        assert len(set(found)) == 15
        assert not set(found) & relevant[name]
        taken = {" ".join(texts[one].lower().split()) for one in relevant[name]}
        assert not {" ".join(texts[one].lower().split()) for one in found} & taken


def test_the_real_sample_is_read_and_mined_and_is_the_same_for_every_replicate(
    shared_data: Callable[[str], str], encoder: str
) -> None:
    task = Passages(seq_len=4, data=shared_data("msmarco"), encoder=encoder, mined=15)
    data = task.open(data_seed=0, sampling_seed=0, batch_size=100, device=CPU)
    assert (data.steps_per_epoch, data.eval_size) == (20, 286)
    again = task.open(data_seed=9, sampling_seed=0, batch_size=100, device=CPU)
    assert same(next(data.batches(0)), next(again.batches(0)))
