from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _no_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is found or downloaded, and caches are the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HSWEEP_DATA", raising=False)
        patch.delenv("HSWEEP_HUB", raising=False)
        patch.setenv("HSWEEP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
