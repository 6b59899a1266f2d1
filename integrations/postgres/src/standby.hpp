// Standbys. A server with memlith writes no full page images into its log. A standby without memlith replays
// that log onto pages that a power cut can tear, and nothing mends them. A standby with memlith says so when it
// connects, and a server refuses others. Floor: postgres.
#pragma once

namespace memlith_postgres {

// In a process of a server that is about to load the library with which a standby connects: its connection will tell
// the other server that pages are whole here. The option is in no other process's connections.
void announce_standby(const char* path);

// In a process of a server that is about to read this file: ends it with an error for the other side if it sends the
// log to a standby without memlith. MEMLITH_POSTGRES_STANDBYS=any makes a warning of the error.
void check_receiver(const char* path, int flags);

}  // namespace memlith_postgres
