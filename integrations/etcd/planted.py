"""Faults of the write-ahead log for tests, which have to find them: name, file of wal/, what it has, what takes its
place."""
import sys

PLANTED = {
    # A save does not wait for its flush.
    "unsynced": ("wal.go", "_, err = w.log.AppendWrite(records[:count]...)",
                 "_, err = w.log.Append(records[:count]...)"),
    # Term and vote are saved without having changed.
    "lost-state": ("wal.go", "batch.add(StateType, 0, &st)", "batch.add(StateType, 0, &w.state)"),
    # Entries that were replaced come back.
    "stale-entries": ("wal.go", "ents = append(ents[:at], entry)",
                      "if at == uint64(len(ents)) {\n\t\t\t\t\tents = append(ents, entry)\n\t\t\t\t}"),
    # Records that a snapshot needs are removed.
    "early-release": ("content.go", "return mark\n",
                      "return place{snapshot.number, snapshot.index, snapshot.before}\n"),
    # The newest hard state is removed with older records.
    "released-state": ("wal.go", "w.content.state < first {", "w.content.state < first && w.readOnly {"),
}


def plant(fault, name, text):
    """The text of a file of wal/ with the fault."""
    file, old, new = PLANTED[fault]
    if file != name:
        return text
    if text.count(old) != 1:
        sys.exit(f"{name} does not have what the fault {fault} changes")
    return text.replace(old, new)
