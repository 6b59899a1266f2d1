#!/usr/bin/env python3
"""docs/guarantees.md, "bbolt": what a View has told beside commits whose flushes take a while is there after each power
cut.

A program of integrations/bbolt commits and tells what its Views saw, on a disk that loses at a cut what was not
flushed. The same program without flushes has to lose something, or the test would show nothing.
Exit code 77: this machine lacks root, FUSE or loop devices.
"""
import os
import pathlib
import subprocess
import sys
import threading

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "power/rig"))
from foreign import PowerCuts, Wrong, hold_power_cuts, options_of, seeded_random, skip_without


class Cutter(PowerCuts):
    operations_max, operations_of_a_start = 400, 60

    def __init__(self, given, chance, name, preload=None):
        super().__init__(given, chance, name)
        self.program, self.path = given.program, self.folder.target / "db"
        self.preload = {"LD_PRELOAD": str(preload)} if preload else {}
        self.process, self.reader, self.told = None, None, 0

    def _start(self, variable):
        # pylint: disable=consider-using-with
        return subprocess.Popen([self.program], env={**os.environ, **self.preload, variable: str(self.path)},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def begin(self):
        self.process = self._start("MEMLITH_BBOLT_WATCH")
        self.reader = threading.Thread(target=self._listen, args=(self.process.stdout,))
        self.reader.start()

    def _listen(self, output):
        for line in output:
            if line.endswith("\n"):  # else it was cut by the kill
                self.told = max(self.told, int(line))
                self.acknowledged += 1

    work = begin

    def check(self, last):
        teller = self._start("MEMLITH_BBOLT_TELL")
        said, wrong = teller.communicate()
        if teller.returncode != 0:
            raise Wrong(f"the database is not sound: {wrong}")
        if int(said) < self.told:
            raise Wrong(f"{int(said)} is there, a View has told of {self.told}")

    def last_words(self):
        if self.process.poll() is None:
            return None
        return self.process.stderr.read() or f"exit code {self.process.returncode}"

    def kill(self):
        if self.process is not None:
            self.process.kill()

    def reap(self):
        if self.process is not None:
            self.process.wait()
            self.reader.join()
            self.process.stderr.close()
            self.process = None


def main():
    options = options_of(__doc__, "program", "bin")
    options.add_argument("--cuts", type=int, default=30)
    given = options.parse_args()
    skip_without(given.program, given.bin / "power-disk")

    def memlith(chance):
        return [(Cutter(given, chance, "bbolt"), given.cuts)]

    def without_flushes(chance):
        return Cutter(given, chance, "bbolt-no-flush", given.bin / "power-no-flush.so")

    return hold_power_cuts(seeded_random("the cuts, not how threads run"), memlith, 5, without_flushes, 30)


if __name__ == "__main__":
    sys.exit(main())
