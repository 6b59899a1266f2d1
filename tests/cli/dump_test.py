#!/usr/bin/env python3
"""`memlith dump` and `memlith load`: a loaded store holds what was dumped, and its dump is the same text; a dump that
was cut or changed is refused; a load that fails or is killed leaves no store.

Usage: dump_test.py MEMLITH GOLDEN_STORE LIBMEMLITH DUMP_TYPES
"""
import base64
import fcntl
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zlib

MEMLITH, GOLDEN_STORE, LIBRARY, DUMP_TYPES = sys.argv[1:5]
GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
FIRST = "memlith-dump 1 folder"
# A heap with an object of a type of C, and a number.
MAKE_HEAP = """
import ctypes, sys
class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("rest", ctypes.c_uint8 * 500)]
class Type(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("name", ctypes.c_char_p), ("size", ctypes.c_uint64),
                ("alignment", ctypes.c_uint32), ("layout", ctypes.c_uint32)]
memlith = ctypes.CDLL(sys.argv[1])
store, heap, block = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert memlith.memlith_store_open(sys.argv[2].encode(), ctypes.byref(Options(12, 1)), ctypes.byref(store)) == 0
assert memlith.memlith_heap_open(store, b"heap", ctypes.byref(Options(12, 1)), ctypes.byref(heap)) == 0
for name, type_name, size in (b"list", b"struct list", 16), (b"number", b"_ZTSl", 8):
    assert memlith.memlith_heap_allocate(heap, ctypes.c_uint64(size), ctypes.c_uint64(0), ctypes.byref(block)) == 0
    ctypes.memset(block, 7, size)
    assert memlith.memlith_heap_set_name(heap, name, block, ctypes.byref(Type(32, type_name, size, 8, 0))) == 0
assert memlith.memlith_heap_persist(heap) == 0
assert memlith.memlith_heap_close(heap) == 0
assert memlith.memlith_store_close(store) == 0
"""


def whole(*lines, first=FIRST, objects=1):
    """A dump of these lines."""
    text = "".join(f"{line}\n" for line in (first, *lines)).encode()
    return text + f"end of dump objects={objects} lines={len(lines) + 1} crc32={zlib.crc32(text):08x}\n".encode()


class Dump(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("MEMLITH_TEST_DIR") or None, prefix="dump-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.store = self.folder / "store"
        self.copy = self.folder / "copy"

    def run_it(self, *words, status=0, given=None, limits=""):
        command = [MEMLITH, *map(str, words)]
        if limits:
            command = ["bash", "-c", f'{limits}; exec "$@"', "bash", *command]
        done = subprocess.run(command, capture_output=True, input=given, check=False)
        said = (done.stdout if status == 0 else done.stderr).decode()
        self.assertEqual(done.returncode, status, said + done.stderr.decode())
        return said

    def dump(self, *words):
        return self.run_it("dump", *words)

    def is_copy(self, store):
        """Its files know that they are copies; those of earlier builds do not."""
        done = subprocess.run([MEMLITH, "info", store], capture_output=True, check=False)
        return b"these files are copies" in done.stderr

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def check_round_trip(self, store, copy, *words):
        """The text, which the loaded store has, too."""
        text = self.dump(store, *words)
        self.run_it("load", copy, given=text.encode())
        self.assertEqual(self.dump(copy, *words), text)
        self.run_it("verify", copy)
        return text

    def test_golden_stores(self):
        for path in sorted(GOLDEN.glob("*/*.tar.xz")):
            kind = path.name.removesuffix(".tar.xz").removesuffix("-crashed")
            if kind not in {"folder", "blocks", "file", "heap", "kv", "applog", "python", "redis"}:
                continue
            folder = self.folder / path.name
            with tarfile.open(path) as archive:
                archive.extractall(folder)
            for log in sorted({*folder.glob("*/log"), *folder.glob("store.memlith")}):
                store = log.parent if log.name == "log" else folder / "store"
                with self.subTest(path.name, store=store.name):
                    if "crashed" in path.name and self.is_copy(store):
                        self.run_it("recover", "--accept-copy", store)
                    copy = folder / f"{store.name}-copy"
                    text = self.check_round_trip(store, copy, *(["--bytes"] if kind == "redis" else []))
                    self.assertGreater(len(text.splitlines()), 4)
                    if kind in {"python", "redis"}:
                        continue
                    done = subprocess.run([GOLDEN_STORE, "check", kind, copy], capture_output=True, text=True,
                                          check=False)
                    self.assertEqual(done.returncode, 0, done.stderr)

    def test_records(self):
        for key, value in ("b", "two"), ("a", "one"), ("c\\x00\\xff", "line\\x0aend \\x5c"), ("empty", ""):
            self.run_it("kv", "put", self.store, "first", key, value)
        self.run_it("kv", "put", self.store, "second\tmap", "k", "v" * 30000)
        lines = self.check_round_trip(self.store, self.copy).splitlines()
        self.assertEqual(lines[:5], [FIRST, "kv max_size=1099511627776 name=kv", "map first", " a", " one"])
        self.assertIn(" c\\x00\\xff", lines)
        self.assertIn("map second\\x09map", lines)
        self.assertEqual(("".join(f"{line}\n" for line in lines)).encode(), whole(*lines[1:-1]))
        self.assertEqual(self.run_it("kv", "get", self.copy, "first", "empty"), "\n")

    def test_what_was_written_by_hand(self):
        text = whole("kv name=stock", "map m", *(line for number in range(30000) for line in
                                                 (f" key{number:06}", " " + "x" * (number % 150))), "end",
                     "log first=41 size=4096 max_size=8192 name=a b", " 41 one", " 42 ", " 43 \\x00", "end",
                     "region size=8192 name=bytes", "at 100", " " + base64.b64encode(b"hello").decode(), "at 8191",
                     " /w==", "end", objects=3)
        self.run_it("load", self.copy, given=text)
        self.assertEqual(len(self.run_it("kv", "scan", self.copy, "m", "--kv", "stock").splitlines()), 30000)
        again = self.dump(self.copy)
        self.assertIn("first=41 max_size=8192 size=4096 name=a b\n 41 one\n 42 \n 43 \\x00\nend\n", again)
        # Lines of regions begin at multiples of 48.
        line = base64.b64encode(b"\0\0\0\0hello".ljust(48, b"\0")).decode()
        self.assertIn(f"\nat 96\n {line}\nat 8160\n ", again)
        self.assertEqual(self.dump(self.copy, "a b").count("name="), 1)
        self.assertIn('no object "c"', self.run_it("dump", self.copy, "c", status=1))
        self.assertEqual(self.dump(self.copy), again)

    def test_a_log_that_is_full(self):
        lines, size = [], 0
        for number in range(7, 1000):
            entry = "e" * (number % 60)
            size += (len(entry) + 24 + 7) // 8 * 8
            if size > 8192 - 24:
                break
            lines.append(f" {number} {entry}")
        self.run_it("load", self.store, given=whole("log first=7 size=8192 name=log", *lines, "end"))
        self.check_round_trip(self.store, self.copy)

    def test_objects_of_heaps(self):
        def of(name, mangled, size, value, alignment=8):
            return " " + json.dumps({"name": name, "type": mangled, "size": size, "alignment": alignment, "layout": 7,
                                     "value": value}, separators=(",", ":"))
        text = "_ZTSN7memlith6stringE"
        long = "a text that is too long to lie in the string itself"
        objects = [
            of("array", "_ZTSSt5arrayIiLm3EE", 12, [-1, 0, 2147483647], 4),
            of("c array", "_ZTSA2_A3_h", 6, [[1, 2, 3], [4, 5, 255]], 1),
            of("double", "_ZTSd", 8, 0.1), of("double 2", "_ZTSd", 8, "0x7ff0000000000000"),
            of("float", "_ZTSf", 4, -1.5, 4), of("flag", "_ZTSb", 1, True, 1),
            of("list", "_ZTSNSt7__cxx114listIN7memlith6stringENS1_9allocatorIS2_EEEE", 32, ["b", "a", long]),
            of("multi", "_ZTSN7memlith8multisetIiSt4lessIvEEE", 56, [1, 1, 2]),
            of("optional", "_ZTSSt8optionalIlE", 16, [-5]), of("optional 2", "_ZTSSt8optionalIlE", 16, []),
            of("person", "_ZTS6Person {_ZTSN7memlith6stringE, _ZTSi}", 48, [long, 1650]),
            of("set", "_ZTSN7memlith3setINS_6stringESt4lessIvEEE", 56, [f"key {i:04}" for i in range(1000)]),
            of("text", text, 40, "\\x00\\x5c"), of("vector", "_ZTSSt6vectorIS_ItN7memlith9allocatorItEEENS1_IS3_EEE",
                                                  32, [[], [1], [1, 65535]]),
        ]
        objects.sort(key=lambda line: json.loads(line)["name"])
        given = whole("heap max_size=1073741824 name=objects", *objects, "end")
        self.run_it("load", self.store, given=given)
        self.assertEqual(self.check_round_trip(self.store, self.copy), given.decode())
        for line, told in ((of("x", "_ZTSPi", 8, 1), "not described"), (of("x", text, 40, 5), "no value of the type"),
                           (of("x", text, 48, ""), "not described"), (of("x", "_ZTSh", 1, 256, 1), "no value"),
                           (of("x", "_ZTSh", 1, -1, 1), "no value"), (of("x", "_ZTSa", 1, -129, 1), "no value"),
                           (of("x", "_ZTSN7memlith3setIiSt4lessIvEEE", 56, [2, 1]), "no value"),
                           (of("x", "_ZTSN7memlith3setIiSt4lessIvEEE", 56, [1, 1]), "no value"),
                           (of("x", "_ZTSA9223372036854775807_d", 8, []), "not described"),
                           (of("x", text, 40, "\\x"), "no value"), (" {", "in JSON"), (" " + "[" * 100000, "in JSON"),
                           (" {\"name\":5}", "in JSON")):
            with self.subTest(line[:80]):
                said = self.run_it("load", self.folder / "refused", status=1,
                                   given=whole("heap name=objects", line, "end"))
                self.assertIn("line 3 of the dump", said)
                self.assertIn(told, said)
        twice = self.run_it("load", self.folder / "refused", status=1,
                            given=whole("heap name=objects", objects[0], objects[0], "end"))
        self.assertIn("line 4 of the dump", twice)
        self.assertEqual(self.names(), ["copy", "store"])

    def test_containers_go_on_with_what_was_loaded(self):
        subprocess.run([DUMP_TYPES, "make", self.store], check=True)
        self.check_round_trip(self.store, self.copy)
        for each in self.copy, self.store:
            done = subprocess.run([DUMP_TYPES, "check", each], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_random_changes_with_a_right_sum(self):
        """Each load fails or makes a store, and neither runs out of bounds nor of memory."""
        subprocess.run([DUMP_TYPES, "make", self.store], check=True)
        lines = self.dump(self.store).splitlines()[1:-1]
        seed = int(os.environ.get("MEMLITH_SEED") or random.randrange(1 << 30))
        print(f"seed {seed}: MEMLITH_SEED replays it", flush=True)
        rng = random.Random(seed)
        hand = ["kv name=a", "map m", " k", " v", "end", "log first=1 max_size=8192 size=8192 name=b", " 1 x", " 2 y",
                "end", "region size=8192 name=c", "at 96", " /w==", "end"]
        for _ in range(150):
            changed = list(rng.choice((lines, hand)))
            for _ in range(rng.randrange(1, 4)):
                number = rng.randrange(len(changed))
                line = changed[number]
                at = rng.randrange(len(line) + 1)
                changed[number] = rng.choice((
                    line[:at] + chr(rng.randrange(32, 127)) + line[at + 1:], line[:at] + line[at + rng.randrange(9):],
                    line[:at] + str(rng.choice((-1, 0, 2**31, 2**63, 2**64 - 1))) + line[at:], rng.choice(changed)))
            told = subprocess.run(["bash", "-c", 'ulimit -s 256 -v 4194304; exec "$@"', "bash", MEMLITH, "load",
                                   self.copy], input=whole(*changed, objects=rng.choice((1, 3))), capture_output=True,
                                  check=False)
            self.assertIn(told.returncode, {0, 1}, changed)
            if told.returncode == 0:
                self.run_it("verify", self.copy)
                shutil.rmtree(self.copy)
            self.assertEqual(self.names(), ["store", "store.memlith"], told.stderr)

    def test_types_that_are_not_described(self):
        made = subprocess.run([sys.executable, "-B", "-c", MAKE_HEAP, LIBRARY, self.store], capture_output=True,
                              text=True, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        out = self.folder / "out"
        said = self.run_it("dump", self.store, "--out", out, status=1)
        self.assertIn('object "list" of a heap has a type that its name does not describe: struct list', said)
        self.assertFalse(out.exists())
        said = self.run_it("dump", self.store, "--out", out, "--skip", status=4)
        self.assertIn('left out: object "list"', said)
        self.run_it("load", self.copy, "--in", out)
        self.assertIn('"name":"number"', self.check_round_trip(self.copy, self.folder / "again"))
        self.check_round_trip(self.store, self.folder / "bytes", "--bytes")
        self.assertIn("struct list", self.run_it("dump", self.folder / "bytes", status=1))

    def test_sqlite_is_refused(self):
        with tarfile.open(next(GOLDEN.glob("*/sqlite.tar.xz"))) as archive:
            archive.extractall(self.folder)
        self.assertIn("sqlite export", self.run_it("dump", self.folder / "app.db", status=1))

    def test_addresses_that_are_taken(self):
        address = re.compile(rb"address=\S+")
        golden = self.folder / "golden"
        with tarfile.open(next(GOLDEN.glob("*/folder.tar.xz"))) as archive:
            archive.extractall(golden)
        text = self.dump(golden / "store").encode()
        taken = address.sub(b"address=0x1000", text)
        taken = whole(*taken.decode().splitlines()[1:-1], objects=2)
        self.run_it("load", self.copy, status=1, given=taken)
        self.run_it("load", self.copy, "--anywhere", given=taken)
        self.assertEqual(address.sub(b"", self.dump(self.copy).encode().rsplit(b"end of dump")[0]),
                         address.sub(b"", text.rsplit(b"end of dump")[0]))

    def test_beside_a_writer(self):
        self.run_it("kv", "put", self.store, "map", "key", "value")
        records = "".join(f"key{number}\tvalue{number}\n" for number in range(60000))
        (self.folder / "records").write_text(records, encoding="utf-8")
        with subprocess.Popen([MEMLITH, "kv", "put", self.store, "map", "--in", self.folder / "records"],
                              stdout=subprocess.DEVNULL) as writer:
            while True:  # a dump could open the store before the writer does, and keep that out; `stat` takes no lock
                shown = subprocess.run([MEMLITH, "stat", self.store, "--json"], capture_output=True, check=False)
                if shown.returncode == 0 and json.loads(shown.stdout)["process"] == writer.pid:
                    break
                self.assertIsNone(writer.poll())
            seen = set()
            while writer.poll() is None:
                lines = self.dump(self.store).splitlines()
                found = {line for line in lines if line.startswith(" key")}
                # A prefix of what was put, and never less than before.
                self.assertLessEqual(seen, found)
                self.assertEqual(found - {" key"}, {f" key{number}" for number in range(len(found) - 1)})
                seen = found
        self.assertEqual(writer.returncode, 0)

    def test_to_a_file(self):
        self.run_it("kv", "put", self.store, "map", "key", "value")
        out = self.folder / "out"
        out.write_text("old", encoding="utf-8")
        self.run_it("dump", self.store, "--out", out)
        self.assertEqual(out.read_text(encoding="utf-8"), self.dump(self.store))
        self.assertIn("--out", json.loads(subprocess.run([MEMLITH, "dump", self.store, "--json"], check=False,
                                                         capture_output=True).stdout)["error"]["advice"])
        self.assertEqual(self.names(), ["out", "store"])

    def test_mistakes(self):
        def refused(given, told):
            said = self.run_it("load", self.copy, given=given, status=1,
                               limits="ulimit -s 256 -v 4194304")
            self.assertRegex(said, told)
            left = self.names()
            shutil.rmtree(self.copy, ignore_errors=True)
            self.assertEqual(left, ["store"], said)
        self.run_it("kv", "put", self.store, "map", "key", "value")
        self.assertIn("exists already", self.run_it("load", self.store, given=whole(objects=0), status=1))
        refused(b"", "line 1 of the dump: there is none")
        refused(b"memlith-kv-dump 1\n", "line 1 .*was expected")
        refused(whole(first="memlith-dump 2 folder", objects=0), "line 1 ")
        refused(whole(objects=1), "line 2 .*objects=0 ")
        refused(whole(objects=0) + b"\n", "line 2 .*more behind")
        largest = 2**64 - 1
        for lines, line, told in (
                (["kv name=a\\x"], 2, "backslash"), (["kv name=a\\x00"], 2, "zero"), (["kv size=x name=a"], 2, "kind"),
                (["kv"], 2, "kind"), (["tree name=a"], 2, "no kind of object"), (["kv size=-1 name=a"], 2, "kind"),
                ([f"kv size={largest}0 name=a"], 2, "kind"), ([f"kv max_size={largest} name=a"], 2, ""),
                (["kv name=a", " k", " v", "end"], 3, "a map"), (["kv name=a", "map m", " k", "end"], 5, "value"),
                (["kv name=a", "map m", "map m", "end"], 4, ""), (["kv name=a", "map m", " ", " v", "end"], 5, ""),
                (["kv name=a", "end", "kv name=a", "end"], 4, ""), (["kv name=a", "map m", " k\\xg0"], 4, "a map"),
                (["log name=a", "end"], 2, ""), (["log first=1 size=4096 name=a", " 2 x", "end"], 3, "entry 1"),
                (["log first=1 size=4096 name=a", " 1 " + "x" * 5000, "end"], 3, ""),
                ([f"log first=1 size={largest} name=a", "end"], 2, ""),
                ([f"log first=1 size={2**62} name=a", "end"], 2, ""),
                ([f"log first={largest} size=4096 name=a", f" {largest} x", " 0 y", "end"], 2, "numbers"),
                ([f"region size={largest} name=a", "end"], 2, ""), ([f"region size={2**60} name=a", "end"], 2, ""),
                ([f"region size=4096 max_size={2**63} name=a", "end"], 2, ""),
                (["region size=4096 address=0x1 name=a", "end"], 2, ""), (["region name=a", "end"], 2, ""),
                (["region size=4096 name=a", "at 5000", "end"], 3, "a place"),
                ([f"region size=4096 name=a", f"at {largest}", "end"], 3, "a place"),
                (["region size=4096 name=a", "at 4096", " AA==", "end"], 4, "run over"),
                *((["region size=4096 name=a", " " + text, "end"], 3, "base64")
                  for text in ("A", "AB==", "A===", "====", "AA=A", "AA A", "AA==AAAA")),
                (["region size=4096 name=" + "n" * 300, "end"], 2, ""), (["heap name=a", "x", "end"], 3, "an object")):
            with self.subTest(lines=[line[:60] for line in lines]):
                refused(whole(*lines), f"line {line} .*{told}")

    def test_a_dump_that_was_cut_or_changed(self):
        self.run_it("kv", "put", self.store, "map", "key", "value")
        self.run_it("kv", "put", self.store, "map", "key2", "value")
        text = self.dump(self.store).encode()
        self.run_it("load", self.folder / "log", given=whole("log first=1 size=4096 name=log", " 1 entry", "end"))
        text = whole(*(text.decode().splitlines()[1:-1] + self.dump(self.folder / "log").splitlines()[1:-1]), objects=2)
        for length in range(len(text)):
            self.run_it("load", self.copy, given=text[:length], status=1)
        for place in range(len(text)):
            changed = bytearray(text)
            changed[place] ^= 1 << random.Random(place).randrange(8)
            self.run_it("load", self.copy, given=bytes(changed), status=1)
        self.assertEqual(self.names(), ["log", "store"])

    def test_a_load_beside_another(self):
        given = whole("region size=8192 name=file", " AQ==", "end", first="memlith-dump 1 file")
        folder = self.folder / "copy.memlith-load"
        folder.mkdir()
        (folder / "store").write_bytes(b"half of a file")
        with open(folder / "lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertIn("another load", self.run_it("load", self.copy, given=given, status=1))
            self.assertTrue((folder / "store").exists())
        self.run_it("load", self.copy, given=given)
        self.assertIn(" AQAA", self.dump(self.copy))
        self.assertEqual(self.names(), ["copy", "copy.memlith"])

    @unittest.skipIf(shutil.which("strace") is None, "skip: no strace")
    def test_a_load_that_is_killed(self):
        """Before each of its calls that change a file system. The next load needs no help."""
        self.run_it("kv", "put", self.store, "map", "key", "value" * 1000)
        given = self.folder / "given"
        for first, lines in ((FIRST, self.dump(self.store).splitlines()[1:-1]),
                             ("memlith-dump 1 file", ["region size=8192 name=file", "at 4080", " /w==", "end"])):
            given.write_bytes(whole(*lines, first=first))
            whole_copy = self.folder / f"copy-whole{len(lines)}"
            self.run_it("load", whole_copy, "--in", given)
            wanted = self.dump(whole_copy)
            cut = complete = 0
            for call in ("mkdir", "openat", "write", "pwrite64", "pwritev", "ftruncate", "fallocate", "fsync",
                         "fdatasync", "renameat2", "unlink"):
                for number in range(1, 1000):
                    copy = self.folder / f"copy-{call}{number}{len(lines)}"
                    with self.subTest(call=call, number=number):
                        traced = subprocess.run(
                            ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=" + call, "-e",
                             f"inject={call}:error=EIO:signal=SIGKILL:when={number}", MEMLITH, "load", copy, "--in",
                             given], capture_output=True, check=False)
                        if traced.returncode == 0:
                            break
                        self.assertIn(traced.returncode, {-signal.SIGKILL, 128 + signal.SIGKILL}, traced.stderr)
                        if copy.exists():
                            self.assertEqual(whole(*self.dump(copy).splitlines()[1:-1], first=first),
                                             self.dump(copy).encode())
                            complete += 1
                        else:
                            self.run_it("info", copy, status=1)
                            self.run_it("load", copy, "--in", given)  # whatever is left there
                            self.assertEqual(self.dump(copy), wanted)
                            self.assertFalse(pathlib.Path(f"{copy}.memlith-load").exists())
                            cut += 1
            self.assertGreater(cut, 20)
            self.assertGreater(complete, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
