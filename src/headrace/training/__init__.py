"""The reference trainer: a GPT-2 on any corpus, resumable to the bit. Small, to be read and copied from.

Its modules are imported one by one: `schedule` and `log` need no framework.
"""
