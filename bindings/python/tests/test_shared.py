"""`memlith.SharedRegion`: several processes store to one region, and are killed. The keeper is the package's own."""

import os
import random
import signal
import subprocess
import time

import pytest

import memlith

KEEPER = os.path.join(os.path.dirname(memlith.__file__), "memlith-keeper")


def open_table(store):
    return memlith.SharedRegion(store, "table", 4096)


def test_the_keeper_of_the_package_keeps_and_does_nothing_else(tmp_path):
    with open_table(tmp_path / "store"):
        pid = int(subprocess.check_output(["pgrep", "-n", "-f", f"^{KEEPER} .*{tmp_path}/store$"]))
        assert os.readlink(f"/proc/{pid}/exe") == KEEPER
    for words in [], ["info", "x"], ["keeper", "--ready-fd", "2", "--", "x"], ["keeper", "--ready-fd", "9", "--"]:
        done = subprocess.run([KEEPER, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "starts this program by itself" in done.stderr


def in_child(act):
    """The status of a process that was forked for `act`."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return child


def status_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_commits_are_seen_by_others_and_kept(tmp_path):
    with open_table(tmp_path / "store") as region:
        numbers = region.array(16, "i8")
        with region.transaction() as tx:
            tx.touch_before(numbers[:2])
            numbers[:2] = 1, 2
        assert tx.ticket > 0

        def other():
            with open_table(tmp_path / "store") as own:
                mine = own.array(16, "i8")
                assert own.address == address
                assert list(mine[:2]) == [1, 2]
                with own.transaction(wait=False) as theirs:
                    theirs.touch_before(mine[2:3])
                    mine[2] = 3
                own.wait(theirs.ticket)

        address = region.address
        assert status_of(in_child(other)) == 0
        assert numbers[2] == 3
        with pytest.raises(ZeroDivisionError), region.transaction() as tx:
            tx.touch_before(numbers)
            numbers[:] = 9
            raise ZeroDivisionError
        assert list(numbers[:4]) == [1, 2, 3, 0]
    assert numbers[0] == 1  # an array may outlive the region
    with pytest.raises(memlith.Invalid):
        region.transaction()
    del numbers
    for _ in range(100):
        try:
            with memlith.open(tmp_path / "store") as store:
                assert store.info()["durable_lsn"] > 0
            break
        except memlith.Busy:
            time.sleep(0.05)


def test_ranges_exclude_and_errors_are_exceptions(tmp_path):
    with open_table(tmp_path / "store") as region:
        numbers = region.array(16, "i8")
        first, second = region.transaction(), region.transaction()
        first.touch_before(numbers[:4])
        with pytest.raises(memlith.Conflict):
            second.touch_before(numbers[3:5], timeout=0)
        second.touch_before(numbers[4:5], timeout=0)
        first.abort()
        second.touch_before(numbers[3:4])
        second.abort()
        second.abort()
        with pytest.raises(memlith.Invalid):
            second.commit()
        with pytest.raises(memlith.Invalid):
            region.transaction().touch_before(bytearray(8))
        with pytest.raises(memlith.AddressTaken):
            open_table(tmp_path / "store")
        del numbers
    with pytest.raises(memlith.NotFound):
        memlith.SharedRegion(tmp_path / "nowhere", "table", 4096, create=False)


def test_processes_that_are_killed_leave_whole_moves(tmp_path):
    def work():
        draw = random.Random()
        region = open_table(tmp_path / "store")
        numbers = region.array(16, "i8")
        while True:
            source, target = draw.sample(range(16), 2)
            try:
                with region.transaction() as tx:
                    tx.touch_before(numbers[source : source + 1], timeout=0.05)
                    tx.touch_before(numbers[target : target + 1], timeout=0.05)
                    numbers[source] -= 5
                    numbers[target] += 5
            except memlith.Conflict:
                pass

    with open_table(tmp_path / "store") as region:
        numbers = region.array(16, "i8")
        workers = [in_child(work) for _ in range(4)]
        for turn in range(12):
            time.sleep(random.uniform(0, 0.1))
            os.kill(workers[turn % 4], signal.SIGKILL)
            status_of(workers[turn % 4])
            workers[turn % 4] = in_child(work)
            with region.transaction() as tx:
                tx.touch_before(numbers, timeout=30)
                assert numbers.sum() == 0
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
            status_of(worker)
        del numbers
