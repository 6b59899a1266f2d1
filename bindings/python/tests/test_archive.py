"""`memlith.archive`: commits go to an archive beside the program that writes, and any of them comes back."""

import datetime
import shutil
import time

import numpy as np
import pytest

import memlith
from memlith import archive


def _value_in(place):
    with memlith.open(place, create=False) as store:
        number = int(store.array("number", 1, "i8")[0])
    return number


def _wait_until(archived):
    deadline = time.monotonic() + 20
    while not archived():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_every_persist_can_be_restored(tmp_path):
    target = tmp_path / "archive"
    with memlith.open(tmp_path / "store", log_bytes=1 << 20) as store:
        number = store.zeros("number", 1, "i8")
        store.persist()
        lsns = []
        with archive.open(tmp_path / "store", target, wait=0.001, keep_log_bytes=8 << 20) as archiving:
            for turn in range(20):
                number[0] = turn
                store.persist()
                lsns.append(store.info()["durable_lsn"])
                progress = archiving.step()
                assert progress.gaps == 0 and not progress.log_is_full
            _wait_until(lambda: archiving.step().archived_lsn >= lsns[-1])
            archiving.copy()
        del number
    (run,) = archive.runs(target)
    assert run.why == "first" and run.full_copies == 2 and run.end_lsn >= lsns[-1] >= run.begin_lsn
    for turn in (7, 19):
        restored = archive.restore(target, tmp_path / f"restored{turn}", lsns[turn])
        assert restored.lsn <= lsns[turn] and restored.cut_short == ""
        assert _value_in(tmp_path / f"restored{turn}") == turn
    assert archive.restore(target, tmp_path / "newest").lsn == run.end_lsn
    assert _value_in(tmp_path / "newest") == 19
    with pytest.raises(memlith.Exists):
        archive.restore(target, tmp_path / "newest")


def test_a_thread_archives_and_times_are_found(tmp_path):
    target = tmp_path / "archive"
    with memlith.open(tmp_path / "store") as store:
        number = store.full("number", 1, 1, "i8")
        store.persist()
        with archive.start(tmp_path / "store", target, wait=0.01) as archiving:
            def wait_for_all():
                _wait_until(lambda: archiving.progress.archived_lsn >= store.info()["durable_lsn"])

            number[0] = 2
            store.persist()
            wait_for_all()
            between = datetime.datetime.now(datetime.timezone.utc)
            time.sleep(2.5)
            number[0] = 3
            store.persist()
            wait_for_all()
        del number
    assert archive.restore(target, None, between, dry_run=True).segments > 0
    archive.restore(target, tmp_path / "then", between)
    archive.restore(target, tmp_path / "now")
    assert (_value_in(tmp_path / "then"), _value_in(tmp_path / "now")) == (2, 3)
    with pytest.raises(memlith.NotFound):
        archive.restore(target, tmp_path / "before", datetime.datetime(2001, 1, 1))


def test_commands_are_a_target(tmp_path):
    place = tmp_path / "objects"
    place.mkdir()
    target = archive.Commands(f"cat > {place}/%n", f"cat {place}/%n", f"rm -f {place}/%n", new=True)
    with memlith.open(tmp_path / "store") as store:
        number = store.full("number", 1, 5, "i8")
        store.persist()
        with archive.open(tmp_path / "store", target) as archiving:
            archiving.step()
        del number
    assert len(archive.runs(target)) == 1
    archive.restore(target, tmp_path / "restored")
    assert _value_in(tmp_path / "restored") == 5


def test_damage_and_strangers_are_refused(tmp_path):
    target = tmp_path / "archive"
    with memlith.open(tmp_path / "store") as store:
        number = store.zeros("number", 1, "i8")
        store.persist()
        with archive.open(tmp_path / "store", target, wait=0.001) as archiving:
            archiving.step()
            before = {segment.name: segment.stat().st_size for segment in target.glob("segment-*")}
            number[0] = 1
            store.persist()
            _wait_until(lambda: archiving.step().archived_lsn >= store.info()["durable_lsn"])
            with pytest.raises(memlith.Busy):
                archive.open(tmp_path / "store", target)
        with pytest.raises(memlith.Invalid):
            archiving.step()
        del number
    with memlith.open(tmp_path / "other") as other, pytest.raises(memlith.Invalid):
        other.zeros("number", 1, "i8")
        other.persist()
        archive.open(tmp_path / "other", target)
    newest = max(target.glob("segment-*"))
    # An idle log's empty frame may lie behind the commit: the commit itself is cut.
    newest.write_bytes(newest.read_bytes()[: before.get(newest.name, 0) + 1])
    with pytest.raises(memlith.Corrupt):
        archive.restore(target, tmp_path / "restored")
    restored = archive.restore(target, tmp_path / "restored", as_far_as_possible=True)
    assert newest.name in restored.cut_short
    assert _value_in(tmp_path / "restored") == 0


def test_an_lsn_of_two_histories_needs_its_run(tmp_path):
    target, place, before = tmp_path / "archive", tmp_path / "store", tmp_path / "before"
    with memlith.open(place) as store:
        store.zeros("number", 1, "i8")
        store.persist()
    shutil.copytree(place, before)
    lsns = []
    for life in (1, 2):
        with memlith.open(place) as store:
            number = store.array("number", 1, "i8")
            with archive.open(place, target, wait=0.001) as archiving:
                archiving.step()
                number[0] = life
                ticket = store.persist_async()
                ticket.result()
                lsns.append(ticket.number)
                _wait_until(lambda: archiving.step().archived_lsn >= store.info()["durable_lsn"])
            del number
        if life == 1:  # the second life goes on from the older files
            shutil.rmtree(place)
            before.rename(place)
    first, second = archive.runs(target)
    both = next(lsn for lsn in range(second.begin_lsn, first.end_lsn + 1) if lsn >= max(lsns))
    with pytest.raises(memlith.Invalid, match="run"):
        archive.restore(target, None, both, dry_run=True)
    for life, run in ((1, first.number), (2, np.int64(second.number))):
        archive.restore(target, tmp_path / f"life{life}", np.uint64(both), run=run)
        assert _value_in(tmp_path / f"life{life}") == life
    with pytest.raises(memlith.NotFound):
        archive.restore(target, None, both, run=7, dry_run=True)
    for wrong in ({"at": "2:81920"}, {"at": 1.5}, {"at": -1}, {"at": 2**64}, {"at": both, "run": "2"}, {"run": 1}):
        with pytest.raises(memlith.Invalid, match="at|run"):
            archive.restore(target, None, **wrong, dry_run=True)
