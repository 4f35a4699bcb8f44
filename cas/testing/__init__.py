"""What this package is tested with, for those who build on it.

`backend_suite` is the conformance test of a backend, `strategies` makes directory trees for
Hypothesis, `faults` breaks the filesystem at a chosen step, and `power_cut` takes away what was
never synced. `runs` makes databases of a harness, and `stores` says what every name of a store must
hold.
"""
