"""What watches a deployment, before it is started."""

from __future__ import annotations

import pytest

from pdops.errors import DeploymentError
from pdops.reference import services


def test_rules_that_are_not_installed_are_an_error_and_not_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {path.name for path in services.rule_files()} >= {"rules-alerts.yaml", "rules-recording.yaml"}
    monkeypatch.setattr(services, "_RULES", "pdops_without_rules")
    with pytest.raises(DeploymentError, match="the rules are not there"):
        services.rule_files()
