"""The five claims of docs/explanation/findings.md, a file each: its sentences, its table and its limits."""
