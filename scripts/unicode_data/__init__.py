"""One module a file of Unicode tables; scripts/unicode_tables.py calls them."""
