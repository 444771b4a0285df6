"""Several sources that are one."""

from types import SimpleNamespace

import pytest

from models.errors import NotReady
from models.quantities import Unknown
from pipelines.environments.replay import Together

pytestmark = pytest.mark.fast


class Fake:
    def __init__(self, achieved=1.0, problem=None):
        self.rate = self.stopped = 0.0
        self.share, self.problem = achieved, problem

    def set_rate(self, rate_rps):
        self.rate = rate_rps
        return 5.0 + rate_rps

    def achieved(self, from_s, to_s):
        unknown = isinstance(self.share, Unknown)
        return SimpleNamespace(
            achieved_rps=self.share if unknown else self.share * self.rate, commanded_rps=self.rate
        )

    def stop(self):
        self.stopped = 1.0
        if self.problem is not None:
            raise self.problem


def test_the_rate_is_divided_in_shares_and_added_up_again():
    persons, bids = Fake(), Fake(achieved=0.5)
    both = Together([(persons, 2.0), (bids, 98.0)])
    assert both.set_rate(1000.0) == pytest.approx(985.0)
    assert (persons.rate, bids.rate) == pytest.approx((20.0, 980.0))
    said = both.achieved(0.0, 1.0)
    assert (said.commanded_rps, said.achieved_rps) == pytest.approx((1000.0, 510.0))


def test_what_one_of_them_does_not_know_nobody_knows():
    both = Together([(Fake(), 1.0), (Fake(achieved=Unknown("no answer")), 1.0)])
    assert isinstance(both.achieved(0.0, 1.0).achieved_rps, Unknown)


@pytest.mark.parametrize("problem", [NotReady("it does not stop"), OSError("the disk is full")])
def test_all_are_stopped_also_when_one_will_not(problem):
    one, other = Fake(problem=problem), Fake()
    with pytest.raises(type(problem), match=str(problem)):
        Together([(one, 1.0), (other, 1.0)]).stop()
    assert (one.stopped, other.stopped) == (1.0, 1.0)
