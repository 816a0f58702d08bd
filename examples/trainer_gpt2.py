"""Hugging Face's Trainer, swept: which number of heads suits a tiny GPT-2 on docstrings?

Question. Do more heads lower the loss of a GPT-2 of one layer and width 32? To a Trainer as Hugging
Face's documentation has it, the sweep adds one callback and where to go on from. Needs
`pip install accelerate`, as every Trainer does.

Data. The docstrings of Python's standard library, which every installation has, in tokens of a
byte-level BPE trained on them.

Expectation. Four epochs are too few for heads to differ.

Seen. Of three trials that used their whole budget, those of one head reach 4.23 and 4.24, that of
four 4.23.

Cost. 6 trials of at most 4 epochs; one minute on two cores.

    hsweep run examples/trainer_gpt2.py
"""

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from hsweep import Asha, Point, Run, Sweep, epochs, grid
from hsweep.integrations.transformers import TransformersCallback
from tasks.language.stories import Stories
from tasks.language.subwords import token_line
from tasks.language.text_data import Part

TEXT = Stories(seq_len=64, vocab_size=512, max_documents=400)


class Windows(Dataset[dict[str, Tensor]]):
    """The tokens of one part of the text, cut into sequences that a language model predicts."""

    def __init__(self, part: Part) -> None:
        line = token_line(TEXT, part, TEXT.subwords(), end=end_of_text(), ending="")
        count = len(line) // TEXT.seq_len
        tokens = np.asarray(line[: count * TEXT.seq_len], dtype=np.int64)
        self.sequences = torch.from_numpy(tokens).view(count, TEXT.seq_len)

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        # The model itself shifts the labels by one.
        return {"input_ids": self.sequences[index], "labels": self.sequences[index]}


def end_of_text() -> int:
    """Return the token that ends a docstring."""
    return TEXT.subwords().special("end of text")


def build(point: Point) -> GPT2LMHeadModel:
    """Return the model of a point; the plan counts its parameters."""
    config = GPT2Config(
        n_head=point.heads,
        n_layer=point.depth,
        n_embd=point.width,
        n_positions=TEXT.seq_len,
        vocab_size=TEXT.vocab_size,
        bos_token_id=end_of_text(),
        eos_token_id=end_of_text(),
    )
    return GPT2LMHeadModel(config)


def train(point: Point, run: Run) -> None:
    """Train one trial, from its last checkpoint if it has one."""
    report = TransformersCallback(run)
    arguments = TrainingArguments(
        output_dir=str(run.folder),
        num_train_epochs=run.budget,
        per_device_train_batch_size=32,
        learning_rate=point.lr,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=20,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        seed=run.seeds.init,
        data_seed=run.seeds.sampling,
        use_cpu=run.device.type == "cpu",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        # The Trainer has the weights drawn after it has set the seed.
        model_init=lambda: build(point),
        args=arguments,
        train_dataset=Windows("train"),
        eval_dataset=Windows("validation"),
        callbacks=[report],
    )
    trainer.train(resume_from_checkpoint=report.resume_from)


SWEEP = Sweep(
    name="trainer-gpt2",
    space=grid(heads=[1, 2, 4], depth=[1], width=[32], lr=[3e-3]),
    train=train,
    describe=build,
    metric="eval_loss",
    goal="min",
    budget=epochs(4),
    replicates=2,
    early_stopping=Asha(grace=2),
)
