"""A trial in Python: its status and its trained model."""

import contextlib
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hsweep.command_line import command
from hsweep.errors import UserError, format_error
from hsweep.files import replacing

if TYPE_CHECKING:
    from types import ModuleType

    import torch
    from torch import nn

    from hsweep.record.rows import TrialRow
    from hsweep.record.study import StudyFolder as Record


class StudyTrial:
    """A trial of a study; get one by ``Study.trial``."""

    def __init__(self, study: "Record", row: "TrialRow") -> None:
        self._study, self._row = study, row

    def __repr__(self) -> str:
        return f"<trial {self.key} of {self._study.name}: {dict(self.point)}>"

    @property
    def key(self) -> str:
        """The hash of all that determines the trial."""
        return self._row.key

    @property
    def point(self) -> Mapping[str, Any]:
        """The axis values."""
        return self._row.point

    @property
    def status(self) -> str:
        """How it stands: ``planned``, ``running``, ``finished``, ``stopped_early``, ..."""
        return str(self._row.status)

    @property
    def value(self) -> float | None:
        """The study's metric in the last report; None without one."""
        return self._row.metrics.get(self._study.manifest.metric)

    def save_weights(self, place: str | Path, *, replace: bool = False) -> None:
        """Write the trial's final weights to a safetensors file; where the training is the user's
        own function, the files of its last checkpoint to a folder.

        Raises:
            UserError: they are not kept, or ``place`` exists and is not to be replaced.
        """
        place = Path(place)
        if place.exists() and not replace:
            raise UserError(f"{place} exists; give another name, or --force (replace=True)")
        with self._weights() as (file, header):
            try:
                if "model" in header:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    with replacing(place) as temporary:
                        shutil.copyfile(file, temporary)
                else:
                    _unpack(file, place)
            except OSError as error:
                raise UserError(f"{place} cannot be written ({error.strerror or error})") from error

    def load_model(self, device: "torch.device | str" = "cpu") -> "nn.Module":
        """Return the trial's model with its final weights, in eval mode.

        A warning says where code has changed since the trial was trained.

        Raises:
            UserError: the weights are not kept, or the model cannot be built from what is there.
        """
        import torch
        from safetensors.torch import load_model

        with self._weights() as (file, header):
            if "model" not in header:
                home = self._study.paths.home
                writing = command("model", self._study.name, self.key, "--out", "FOLDER", home=home)
                raise UserError(
                    f"trial {self.key} was trained by a function of your own, so how its model is "
                    f"built is not known here; `{writing}`, or save_weights(FOLDER), writes the "
                    "files of its last checkpoint"
                )
            config, changed = self._configuration(header)
            remark = f" (changed since: {changed})" if changed else ""
            try:
                with torch.random.fork_rng(devices=[]):
                    model: nn.Module = config.build()
                load_model(model, file)
            except Exception as error:  # of a user's class: any
                why = " ".join(format_error(error).split())
                raise UserError(
                    f"the weights of trial {self.key} do not go into the model that {config!r} "
                    f"builds now{remark}: {why}; restore the code it was trained with"
                ) from error
        if changed:
            warnings.warn(
                f"trial {self.key} was trained with other code: {changed} has changed since, so "
                "its model may compute something else now",
                stacklevel=2,
            )
        return model.to(device).eval()

    @contextlib.contextmanager
    def _weights(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield the file of the weights, on this machine, and its header."""
        from hsweep.record.weights import header_of

        folder, attempt = self._study.weights(), (self._row.key, self._row.attempt)
        if self.status != "finished" or attempt not in folder.sizes():
            raise UserError(f"no weights of trial {self.key} are kept: {self._why_not()}")
        with folder.local(attempt) as file:
            try:
                header = header_of(file)
            except Exception as error:  # whatever the library says of a damaged file
                raise UserError(f"the weights {file} are damaged: {format_error(error)}") from error
            yield file, header

    def _why_not(self) -> str:
        row, keep = self._row, self._study.manifest.keep
        with self._study.journal() as journal:
            is_due = row.key in {row.key for row in self._study.kept_weights(journal).missing}
        again = "a study that is run with --set keep=last keeps those of all that finish in it"
        if self.status != "finished":
            return f"only a trial that finishes has final weights, and this one is {self.status}"
        if not is_due:
            best = ", and this trial is not the best" if keep == "best" else ""
            return f"the study has keep={keep!r}{best}; {again}"
        if row.reused_from:
            return (
                f"it was taken from study {row.reused_from}, which keeps none of it; --no-reuse "
                "trains it in a study of its own"
            )
        if self._study.manifest.training:
            return "its last report gave no checkpoint; give one, as in report(..., checkpoint=...)"
        return f"it finished before the study had keep={keep!r}; {again}"

    def _configuration(self, header: Mapping[str, Any]) -> tuple[Any, str]:
        """Return the model that the study's sweep makes at the trial's point, and which of its code
        has changed, in words."""
        from hsweep.design.space import recorded_point
        from hsweep.planning.identity import hash_for_key
        from hsweep.planning.prepare import own_sweep, recorded_options, variant
        from hsweep.planning.user_code import model_at
        from hsweep.workspace import another_sweep

        with another_sweep():
            loaded = own_sweep(self._study)
        sweep = variant(loaded.sweep, recorded_options(self._study.manifest))
        point = recorded_point(header["point"])
        try:
            config = model_at(sweep.model, point, task=None)
            is_same = hash_for_key(config) == self._row.parts.get("model")
        except UserError:
            raise
        except Exception as error:  # of a user's function: any
            raise UserError(
                f"the model of trial {self.key} cannot be made again ({format_error(error)}); "
                "restore the code it was trained with"
            ) from error
        if not is_same:
            raise UserError(
                f"the study's sweep makes another model at {dict(point)} now than the one that "
                f"trial {self.key} has trained; restore the code it was trained with, or have the "
                "weights alone, with save_weights(FILE)"
            )
        return config, self._changed(config, header, loaded.module)

    def _changed(self, config: Any, header: Mapping[str, Any], sweep: "ModuleType") -> str:
        from hsweep.planning.code import code_of
        from hsweep.planning.code_changes import changed_code, code_in_words, recorded_files

        now = code_of(config, sweep.__name__).digest
        before = header.get("model_code", "")
        with self._study.journal() as journal:
            files = recorded_files(journal)
        changed = changed_code({"model_code": before}, {"model_code": now}, files.get)
        return code_in_words(changed) if changed else ""


def _unpack(file: Path, folder: Path) -> None:
    """Write the files that a file of weights holds into a folder."""
    from safetensors.torch import load_file

    if folder.is_file():
        raise UserError(f"{folder} is a file, and what this trial left is a folder; name a folder")
    for name, content in load_file(file).items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise UserError(
                f"{file} holds a file called {name!r}, which would lie outside {folder}"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.numpy().tobytes())
