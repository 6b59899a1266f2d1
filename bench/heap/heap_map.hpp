// memlith's side of the comparison with key-value stores: a memlith::map of strings on a heap, and nothing else. Floor:
// heap-bench.
//
// The program calls no touch: the tracker finds what std::map changed. Threads share the map under one lock, and
// persist as docs/threads.md says.
#pragma once

#include "peers/kv/kv.hpp"

namespace memlith::tool {

// The sides: memlith-instrumented, if this build has memlith-c++, memlith-fault and memlith-scan. Without sync an
// operation changes memory and nothing is persisted.
std::vector<KvPeer> heap_map_sides();
// Without sync only: each operation is captured by an asynchronous persist, in order, and is durable within a second.
std::vector<KvPeer> heap_map_window_sides();
KvPeer heap_map_instrumented_side();

}  // namespace memlith::tool
