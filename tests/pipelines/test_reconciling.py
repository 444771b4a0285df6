"""What is compared with MLflow at the start of an owner, and what that may cost."""

from types import SimpleNamespace

from models.errors import NotReady
from pipelines.integrations.mlflow_store import DATABASE
from pipelines.orchestration import reconciling
from pipelines.settings import loading


def test_where_the_comparison_cannot_be_started_the_owner_goes_on(tmp_path):
    def start(*given, **more):
        raise NotReady("champions was not started, it could not be recorded: no space left on device")

    (tmp_path / DATABASE).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / DATABASE).touch()
    owner = SimpleNamespace(folder=tmp_path, log=lambda role: tmp_path / role, start=start)
    said = []
    environment = {"HEADROOM_FILE": str(tmp_path / "headroom.toml")}
    reconciling.begin(owner, loading.parse("", environment={}), environment=environment, say=said.append)
    (line,) = said
    assert line.startswith("whether decisions go by the models in charge in MLflow was not compared")
