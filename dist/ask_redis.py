#!/usr/bin/env python3
"""Counts once in a Redis server: ask_redis.py SOCKET ROUND. Prints what the counter is then."""
import socket
import sys
import time

with socket.socket(socket.AF_UNIX) as server:
    server.settimeout(20)
    for attempt in range(200):
        try:
            server.connect(sys.argv[1])
            break
        except OSError:
            time.sleep(0.05)
    server.sendall(b"INCR rounds\r\n")
    answer = server.recv(100)
if not answer.startswith(b":"):
    sys.exit(f"round {sys.argv[2]}: {answer!r}")
print(int(answer[1:]))
