# For gdb on programs that use memlith: gdb -x memlith.gdb PROGRAM, or `source memlith.gdb`.
#
# A region tracked by `fault` catches the first store to each page as a SIGSEGV or SIGBUS, and gdb would stop at each of
# them. With these lines gdb stops only at faults that are none of memlith's: in the function that passes such a fault
# on. `backtrace` shows the access behind the frame of the signal handler. Regions with another tracker (scan, explicit)
# cause no faults. Before the first region with the tracker `fault` is open, a program that crashes ends without a stop.
handle SIGSEGV nostop noprint pass
handle SIGBUS nostop noprint pass
set breakpoint pending on
break pass_on_fault
set breakpoint pending auto
