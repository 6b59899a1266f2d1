#!/usr/bin/env python3
"""The assembler of memlith-gcc compares as little as it may, and no less: texts, and what GCC's own assembler gets."""
import os
import platform
import subprocess
import sys

from common import FOLDER, LIBRARY, end, expect

TELL = "\tcall\t__asan_store8_noabort@PLT\n"
RANGE = "\tcmpq\t__memlith_range+8(%rip), "


def assembled(text):
    source, seen, keep = FOLDER / "text.s", FOLDER / "seen.s", FOLDER / "keep"
    source.write_text(text)
    keep.write_text(f'#!/bin/sh\nfor last; do :; done\ncat "$last" >{seen}\n')
    keep.chmod(0o755)
    subprocess.run([LIBRARY / "memlith-gcc/as", source], check=True, env=dict(os.environ, MEMLITH_AS=str(keep)))
    return seen.read_text()


def told(base, *offsets):
    return "".join(f"\tleaq\t{offset}({base}), %rdi\n{TELL}" for offset in offsets)


def checked(number, base, *offsets):
    return f"{RANGE}{base}\n\tjae\t.Lmemlith{number}\n{told(base, *offsets)}.Lmemlith{number}:\n"


def alone(number):
    return f"{RANGE}%rdi\n\tjae\t.Lmemlith{number}\n\t{TELL.strip()}\n.Lmemlith{number}:\n"


def check(what, text, wanted):
    got = assembled(text)
    expect(what, got == wanted, f"{text}---\n{got}--- instead of\n{wanted}")


STORE, NEXT = "\tmovq\t%rax, (%rbx)\n", "\tmovq\t%rax, 8(%rbx)\n"
FIRST, SECOND = "\tmovq\t%rbx, %rdi\n" + TELL + STORE, "\tleaq\t8(%rbx), %rdi\n" + TELL + NEXT

if platform.machine() != "x86_64":
    print("calls are not changed on this machine")
    sys.exit(77)

check("stores by one register are told at once", FIRST + "\t.loc 1 7 3\n.LVL3:\n" + SECOND,
      checked(0, "%rbx", 0, 8) + STORE + "\t.loc 1 7 3\n.LVL3:\n" + NEXT)
for what, between in (("its change", "\taddq\t$16, %rbx\n"), ("a jump", "\tjne\t.L4\n"), ("a label", ".L4:\n"),
                      ("a call", "\tcall\tpthread_mutex_lock@PLT\n"), ("assembly", "#APP\n\tnop\n#NO_APP\n"),
                      ("an exchange", "\txchgq\t%rbx, %rax\n"), ("a load into a part of it", "\tmovl\t(%rax), %ebx\n"),
                      ("an operation whose result goes there", "\tpextrq\t$0, %xmm0, %rbx\n"),
                      ("a pop", "\tpopq\t%rbx\n"), ("a change with a comment", "\tmovq\t%rax, %rbx\t# a, b\n"),
                      ("a change of the second byte", "\tmovb\t%al, %bh\n")):
    check(f"but not across {what}", FIRST + between + SECOND,
          checked(0, "%rbx", 0) + STORE + (between if between[1:5] != "call" else
                                           "\tcall\t__memlith_wrap_pthread_mutex_lock@PLT\n") +
          checked(1, "%rbx", 8) + NEXT)
check("another register in between does no harm", FIRST + "\tmovq\t8(%rbx), %rcx\n\tcmpq\t%rax, %rbx\n" + SECOND,
      checked(0, "%rbx", 0, 8) + STORE + "\tmovq\t8(%rbx), %rcx\n\tcmpq\t%rax, %rbx\n" + NEXT)
check("a register that calls change is compared alone",
      "\tleaq\t8(%rax), %rdi\n" + TELL + "\tleaq\t16(%rax), %rdi\n" + TELL,
      checked(0, "%rax", 8) + checked(1, "%rax", 16))
check("unless its value is kept in another", "\tmovq\t%rsi, %rbx\n\tmovq\t%rsi, %rdi\n" + TELL + STORE + SECOND,
      "\tmovq\t%rsi, %rbx\n" + checked(0, "%rbx", 0, 8) + STORE + NEXT)
check("an address that is used is computed", "\tmovq\t%rbx, %rdi\n\tmovq\t(%rdi), %rax\n" + TELL + STORE,
      "\tmovq\t%rbx, %rdi\n\tmovq\t(%rdi), %rax\n" + alone(0) + STORE)
check("so is one whose register has changed", "\tmovq\t%rbx, %rdi\n\taddq\t$8, %rbx\n" + TELL,
      "\tmovq\t%rbx, %rdi\n\taddq\t$8, %rbx\n" + alone(0))
for address in "-8(%rbx)", "(%rbx,%rcx,8)", "8(,%rcx,8)":
    check(f"so is {address}", f"\tleaq\t{address}, %rdi\n" + TELL, f"\tleaq\t{address}, %rdi\n" + alone(0))
for address in "16(%rsp)", "16(%rsp,%rcx,8)", "global+8(%rip)":
    check(f"a store to {address} is not told", f"\tleaq\t{address}, %rdi\n" + TELL + STORE, STORE)
end()
