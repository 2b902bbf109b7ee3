"""Attacks on Loadmaster that can run for a night: ``python -m campaigns.differential|fuzz|kill|soak --hours H``.

Each keeps its figures in a folder, goes on where it was stopped, and stores what it finds as a case that can be
repeated. See ``docs/reliability.md``.
"""
