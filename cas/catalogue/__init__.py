"""Versions, seeds, tags and their lineage: what people name, over the objects and the refs.

One noun a module: `versions`, `seeds` (with `promote`), `tags`, `lineage`, `diff`, `resolve`,
`stats` and `workspaces`. They share a `context.Context`, which `cas.store` makes when it opens a
store, and every write goes through `publish`.
"""
