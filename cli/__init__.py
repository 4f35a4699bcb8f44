"""The `cas` command: a thin shell over the public API of the package `cas`."""
