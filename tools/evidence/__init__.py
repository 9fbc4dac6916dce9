"""What tools/findings.py writes: the records, tables and sentences of docs/explanation/findings.md."""
