"""The pages that are served: of one study, kept until there is news, and of all of a home."""

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError, told
from hsweep.paths import Home
from hsweep.record.study import StudyFolder, list_studies
from hsweep.record.study_lock import is_held
from hsweep.redaction import redact
from hsweep.terminal import note
from hsweep.watching.now import Now, study_now

if TYPE_CHECKING:
    from hsweep.tracking.target import TrackingTarget

_SHARE: Final = 0.05
"""Of one core that a study's page may take: training goes first."""
_LEAST_SECONDS: Final = 1.0


@dataclass(slots=True)
class _Pace:
    """Lets something be done again only once it has taken its share of the time.

    Attributes:
        next: when that is, by `time.monotonic`.
    """

    next: float = 0.0

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self.next

    def took(self, seconds: float) -> None:
        self.next = time.monotonic() + max(_LEAST_SECONDS, seconds / _SHARE)


class StudyPages:
    """What a study's page shows, worked out no more often than needed, in any thread.

    Args:
        price: of a GPU for an hour; None for not to speak of money.
        tracking_uri: of the store whose runs the page links; None for the study's own.
    """

    def __init__(
        self, home: Home, name: str, price: float | None = None, tracking_uri: str | None = None
    ) -> None:
        self._home, self._name = home, name
        self._price, self._tracking_uri = price, tracking_uri
        self._reading, self._building = threading.Lock(), threading.Lock()
        self._read, self._built = _Pace(), _Pace()
        self._now: Now | None = None
        self._seen = -1
        self._page = ""
        self._results: tuple[int, str] | None = None
        self.version = 0

    def now(self) -> Now:
        """Return how the study stands.

        Raises:
            UserError: it cannot be read.
        """
        with self._reading:
            if self._now is not None and not self._read.is_due:
                return self._now
            began = time.monotonic()
            paths = self._home.study(self._name)
            seen = paths.journal.stat().st_size if paths.journal.exists() else -1
            # While it runs time passes, too.
            if self._now is None or seen != self._seen or is_held(paths) or self._was_running:
                study = StudyFolder.open(self._home, self._name)
                with study.journal() as journal, journal.snapshot():
                    self._now = study_now(study, journal, self._price)
                self._seen = seen
            self._read.took(time.monotonic() - began)
            return self._now

    @property
    def _was_running(self) -> bool:
        return self._now is not None and self._now.state == "running"

    def page(self) -> str:
        """Return the page as it was worked out last, at first anew.

        Raises:
            UserError: the study cannot be read.
        """
        now = self.now()
        with self._building:
            if not self._page:
                self._build(now)
        return self._page

    def renew(self) -> None:
        """Work the page out again if it was asked for, there are new results and it is due."""
        try:
            now = self.now()
        except UserError:  # who asks for the page is told so
            return
        # The last one is always worked out: nothing would bring it about later.
        is_due = self._built.is_due or now.state != "running"
        if not (self._page and is_due) or _results(now) == self._results:
            return
        if not self._building.acquire(blocking=False):
            return
        try:
            self._build(now)
        except Exception as error:  # the page stays as it is, and the next results try again
            note(f"the page of {self._name} cannot be renewed ({redact(told(error))})")
        finally:
            self._results = _results(now)
            self._building.release()

    def _build(self, now: Now) -> None:
        from analysis.ask import answer_study
        from analysis.report.build import Live, build_report, report_input

        began = time.monotonic()
        study = StudyFolder.open(self._home, self._name)
        with study.reading() as tables:
            answer = answer_study(study, tables)
            shown = report_input(study, answer, self._run_urls(study), tables)
        version = self.version + 1
        live = Live(now.to_json(), f"/studies/{self._name}/events", version)
        self._page = build_report(shown, live)
        self.version, self._results = version, _results(now)
        self._built.took(time.monotonic() - began)

    def _run_urls(self, study: StudyFolder) -> dict[str, str]:
        from hsweep.running.resume import target_of
        from hsweep.tracking.ui import reachable_run_urls

        try:
            target: TrackingTarget = target_of(study, self._home, self._tracking_uri)
        except UserError:  # what it was tracked with needs what is not here
            return {}
        return reachable_run_urls(study.paths.journal, target)


def _results(now: Now) -> tuple[int, str]:
    """Return what tells whether a study has results that a page before has not."""
    return now.ended, now.state


class HomePages:
    """The pages of a home: one for each study, and one that lists them.

    Args:
        price: of a GPU for an hour; None for not to speak of money.
        tracking_uri: of the store whose runs the pages link; None for each study's own.
    """

    def __init__(
        self, home: Home, price: float | None = None, tracking_uri: str | None = None
    ) -> None:
        self._home, self._price, self._tracking_uri = home, price, tracking_uri
        self._studies: dict[str, StudyPages] = {}

    def study(self, name: str) -> StudyPages:
        """Return the pages of the study called so.

        Raises:
            UserError: there is none, or it cannot be read.
        """
        if name not in self._studies:
            found = StudyPages(self._home, name, self._price, self._tracking_uri)
            found.now()
            self._studies[name] = found
        return self._studies[name]

    def list(self) -> str:
        """Return the page that lists the studies."""
        from analysis.report.page import render

        return render(
            "studies.html.j2",
            [],
            ("page",),
            title="Studies · hsweep",
            explored=False,
            home=str(self._home.root),
            studies=[_listed(self._home, paths.name) for paths in list_studies(self._home)],
        )


def _listed(home: Home, name: str) -> dict[str, Any]:
    try:
        status = StudyFolder.open(home, name).status()
    except Exception as error:  # whatever has become of its files, the others are listed
        return {"name": name, "error": str(error)}
    ended = sum(status[each] for each in map(str, TrialStatus) if TrialStatus(each).is_final)
    return {
        "name": name,
        "error": "",
        "state": status["state"],
        "ended": f"{ended:,}",
        "trials": f"{status['trials']:,}",
        "begun": time.strftime("%Y-%m-%d %H:%M", time.localtime(status["created"])),
    }
