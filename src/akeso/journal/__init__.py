"""The history on disk: append-only JSON lines, one set of files per rank, in the run folder.

A journal is a handful of segments, ``journal-<rank>-<session>-<segment>.jsonl``. Every line is one record
with a kind and a sequence number. The newest segment is only appended to; when the journal has reached its
size, two older segments are replaced by one that holds every second reading of both, so that a journal never
outgrows its limit however long the run. A reader needs no lock: it sorts and deduplicates by sequence number.
"""

from akeso.journal.ranks import merge_ranks
from akeso.journal.reading import JournalReading, is_run, read
from akeso.journal.writing import JournalWriter

__all__ = ["JournalReading", "JournalWriter", "is_run", "merge_ranks", "read"]
