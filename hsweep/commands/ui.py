"""``hsweep ui``."""

import click

from hsweep.commands.options import home_option, tracking_option
from hsweep.listening import LOOPBACK
from hsweep.paths import Home


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
@home_option
@tracking_option
def ui(host: str, port: int, home: Home, tracking_uri: str | None) -> None:
    """Serve the MLflow UI on the home's store."""
    from hsweep.tracking.pages import serve_ui
    from hsweep.tracking.target import tracking_target

    if host not in LOOPBACK:
        click.echo(
            f"hsweep: anyone who reaches {host}:{port} can read and delete these runs", err=True
        )
    home.create()
    target = tracking_target(tracking_uri, home, "hsweep")
    serve_ui(target, host=host, port=port)
