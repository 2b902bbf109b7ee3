"""What all studies share: rows that are kept, cases, pages, and where the numbers come from."""
