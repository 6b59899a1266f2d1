#!/usr/bin/env python3
"""The demo, built with memlith-c++ and the instrumented tracker: nothing is lost when its indexer is killed.

Usage: demo_test.py BUILD SOURCE
"""
import concurrent.futures
import os
import subprocess
import sys

from common import FOLDER, LIBRARY, SOURCE, compiler, end, expect

FLAGS = ["-std=c++20", "-O1", "-DMEMLITH_DEMO_TRACKER=instrumented", "-DFMT_SHARED", f"-I{SOURCE}/include"]


def compiled(source):
    target = FOLDER / (source.stem + ".o")
    subprocess.run([compiler(source), *FLAGS, "-c", source, "-o", target], check=True)
    return target


with concurrent.futures.ThreadPoolExecutor(2) as threads:
    objects = list(threads.map(compiled, sorted((SOURCE / "examples/demo").glob("*.cpp"))))
program = FOLDER / "memlith-demo"
subprocess.run([compiler("main.cpp"), *objects, "-o", program, f"-L{LIBRARY}", "-lmemlith", "-lfmt", "-lsqlite3",
                "-pthread", f"-Wl,-rpath,{LIBRARY}"], check=True)
test = SOURCE / "tests/cli/demo_test.py"
done = subprocess.run([sys.executable, "-B", test, program], capture_output=True, text=True, check=False,
                      env=dict(os.environ, MEMLITH_VERIFY_TRACKING="1"))
expect("the tests of the demo, with stores that the compiler records", done.returncode == 0 and
       "not recorded" not in done.stdout + done.stderr, done.stdout + done.stderr)
text = FOLDER / "text"
text.mkdir()
for number in range(400):
    (text / f"{number}.txt").write_text(f"granite {'slate ' * (number % 40)} marble{number}\n" * 50, encoding="utf-8")
store = FOLDER / "store"
for step in (["run", "--folder", text, "--kills", "3", "--store", store], ["check", "--store", store]):
    done = subprocess.run([program, *step], capture_output=True, text=True, check=False)
    expect(f"memlith-demo {step[0]}", done.returncode == 0, done.stdout + done.stderr)
end()
