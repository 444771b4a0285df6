"""Comparison of what Headroom finds and predicts with real Kafka and Spark (`make bench-real`).

Each part is a module with `NAME`, what it asks (`ASKS`), what it will take (`seconds`), `run(lab)`, and
`report(journal)`, which turns what was measured into figures and a table. Pieces that are finished are kept
(`journal`) and not measured again.
"""
