"""Settings that the tasks of sequences of tokens share, and what follows from them alone."""

from dataclasses import dataclass

from tasks.lra.spec import TokenSpec, bytes_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenConfig:
    """Settings of every task of sequences of tokens.

    Attributes:
        max_train_eval: compute the training metrics on this many training examples only.
        steps_per_epoch: batches that count as an epoch; None for one pass over the training set.
            Published recipes are counted in batches, differently for every task.
        label_smoothing: share of the target spread evenly over the classes, in training.
    """

    max_train_eval: int | None = 2_000
    steps_per_epoch: int | None = None
    label_smoothing: float = 0.0

    @property
    def vocab_size(self) -> int:
        """Ids that tokens have: 0 to ``vocab_size - 1``."""
        return self.spec().vocab_size

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConfig(TokenConfig):
    """Settings of a task whose examples are read and not generated.

    Attributes:
        max_train: use this many training examples only.
        max_validation: use this many validation examples only.
        max_test: use this many test examples only.
    """

    max_train: int | None = None
    max_validation: int | None = None
    max_test: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesConfig(ReadConfig):
    """Settings of a task whose tokens are the bytes of texts.

    Attributes:
        seq_len: tokens of a text that a model is given.
        max_bytes: longer texts are cut; None for ``seq_len``. The published recipe cuts at 4,000
            and pads to 4,096.
    """

    seq_len: int = 4096
    max_bytes: int | None = None

    @property
    def bytes_kept(self) -> int:
        """Bytes of a text that a model sees at most."""
        return bytes_kept(self.seq_len, self.max_bytes)
