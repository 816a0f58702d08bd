"""The pages that are served: of one study, kept until there is news, and of all of a home."""

import threading
import time
from typing import Any, Final

from hsweep.errors import UserError, format_error
from hsweep.paths import Home
from hsweep.record.study import StudyFolder, list_studies
from hsweep.record.summary import num_ended
from hsweep.secrets import redact
from hsweep.terminal import warn
from hsweep.watching.now import Now, study_now

_SHARE: Final = 0.05
"""Of one core that a study's page may take: training goes first."""
_MIN_SECONDS: Final = 1.0


class StudyPages:
    """What a study's page shows, worked out no more often than needed, in any thread.

    Args:
        tracking_uri: of the store whose runs the page links; None for the study's own.

    Attributes:
        version: the number of times the page was rendered.
    """

    def __init__(self, home: Home, name: str, tracking_uri: str | None = None) -> None:
        self._home, self._name = home, name
        self._tracking_uri = tracking_uri
        self._reading, self._building = threading.Lock(), threading.Lock()
        self._next_reading = self._next_building = 0.0
        """When each is due again, by ``time.monotonic``."""
        self._now: Now | None = None
        self._page = ""
        self._results: tuple[int, str] | None = None
        self.version = 0

    def now(self) -> Now:
        """Return the present state of the study.

        Raises:
            UserError: it cannot be read.
        """
        with self._reading:
            began = time.monotonic()
            if self._now is None or began >= self._next_reading:
                study = StudyFolder.open(self._home, self._name)
                with study.journal() as journal, journal.snapshot():
                    self._now = study_now(study, journal)
                self._next_reading = _next_time(began)
            return self._now

    def page(self) -> str:
        """Return the last rendered page; the first call renders it.

        Raises:
            UserError: the study cannot be read.
        """
        now = self.now()
        with self._building:
            if not self._page:
                self._build(now)
        return self._page

    def renew(self) -> None:
        """Render the page again if it was requested, has new results and is due."""
        with self._building:
            try:
                now = self.now()
            except UserError:  # a request for the page gets the reason
                return
            # The last one is always worked out: nothing would bring it about later.
            is_due = time.monotonic() >= self._next_building or now["state"] != "running"
            if not (self._page and is_due) or (now["ended"], now["state"]) == self._results:
                return
            try:
                self._build(now)
            except Exception as error:  # the page stays as it is, and the next results try again
                warn(f"the page of {self._name} cannot be renewed ({redact(format_error(error))})")

    def _build(self, now: Now) -> None:
        from analysis.ask import answer_study
        from analysis.report.build import Live, build_report, report_input
        from hsweep.planning.prepare import own_question

        began, self._results = time.monotonic(), (now["ended"], now["state"])
        study = StudyFolder.open(self._home, self._name)
        with study.reading() as tables:
            answer = answer_study(study, tables, own=own_question(study))
            page_input = report_input(study, answer, self._run_urls(study), tables)
        live = Live(now, f"/studies/{self._name}/events", self.version + 1)
        self._page = build_report(page_input, live)
        self.version += 1
        self._next_building = _next_time(began)

    def _run_urls(self, study: StudyFolder) -> dict[str, str]:
        from hsweep.tracking.target import target_of
        from hsweep.tracking.ui import reachable_run_urls

        try:
            target = target_of(study, self._home, self._tracking_uri)
        except UserError:  # its store's password may not be known here
            return {}
        return reachable_run_urls(study.paths.journal, target)


def _next_time(began: float) -> float:
    """Return when work that began at a time and ends now may be done again, so that it takes no
    more than its share of a core."""
    now = time.monotonic()
    return now + max(_MIN_SECONDS, (now - began) / _SHARE)


def home_page(home: Home) -> str:
    """Return the page that lists the studies of a home."""
    from analysis.report.page import render

    return render(
        "studies.html.j2",
        [],
        ("page",),
        title="Studies · hsweep",
        home=str(home.root),
        studies=[_study_row(home, paths.name) for paths in list_studies(home)],
    )


def _study_row(home: Home, name: str) -> dict[str, Any]:
    try:
        status = StudyFolder.open(home, name).status()
    except Exception as error:  # whatever has become of its files, the others are listed
        return {"name": name, "error": str(error)}
    return {
        "name": name,
        "error": "",
        "state": status["state"],
        "ended": f"{num_ended(status):,}",
        "runs": f"{status['runs']:,}",
        "begun": time.strftime("%Y-%m-%d %H:%M", time.localtime(status["created"])),
    }
