"""Where a study reports to when it goes on."""

from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.record.study import StudyFolder
from hsweep.secrets import HIDDEN
from hsweep.tracking.target import TrackingTarget, has_login, tracking_target


def target_of(study: StudyFolder, home: Home, uri: str | None = None) -> TrackingTarget:
    """Return the MLflow store at ``uri``, else the one that a study reports to; UserError for a URI
    of no use, or if the study's held a secret, which is not recorded."""
    manifest = study.manifest
    if not uri:
        uri = manifest.tracking_uri
        if has_login() and uri.startswith("http"):
            uri = uri.replace(f"://{HIDDEN}@", "://")
        if HIDDEN in uri:
            raise UserError(
                f"the study {study.name!r} reports to {uri}, whose password is not kept; give it "
                "again with --tracking-uri, or a server's in MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD"
            )
    return tracking_target(uri, home, manifest.sweep)
