"""Data as they lie: a folder of images, a table, arrays, LEAF's JSON, a saved ``datasets`` folder; one file a form."""
