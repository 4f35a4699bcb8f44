"""Large files are proven together, and nothing of what was asked for is left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cas.maintenance.proving import LOOSE, PACK, Unit, _together
from cas.objects import LARGE

UNITS = st.lists(
    st.builds(
        lambda kind, size, digest: Unit(kind, (digest,), size),
        st.sampled_from([LOOSE, PACK]),
        st.sampled_from([1, LARGE - 1, LARGE, LARGE + 1]),
        st.binary(min_size=2, max_size=2),
    )
)


@given(units=UNITS, cores=st.integers(1, 4))
def test_joined_units_are_the_same_in_the_same_order(units, cores):
    joined = list(_together(units, cores))
    assert [d for unit in joined for d in unit.digests] == [u.digests[0] for u in units]
    assert sum(unit.size for unit in joined) == sum(unit.size for unit in units)
    for unit in joined:
        assert 1 <= len(unit.digests) <= cores
        if len(unit.digests) > 1:
            assert unit.kind == LOOSE
            assert unit.size >= LARGE * len(unit.digests)
