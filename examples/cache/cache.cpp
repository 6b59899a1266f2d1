// A cache server that forgets nothing it acknowledged, kill -9 or not: a hash map and a list for recency, in a heap.
//
//   cache FILE [PORT] [MEBIBYTES]          prints the port; 0 is any free one
//   curl -X PUT --data-binary @photo.jpg localhost:8080/photo
//   curl localhost:8080/photo
//   curl -X DELETE localhost:8080/photo
//
// All requests that arrive together share one persist: each changes the containers, and the replies go out when the
// persist has returned. A reader waits for it too, so that no reader is shown a value that a crash could take back.
// When the values fill the cache, those that were not used for longest go.
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <list>
#include <string>
#include <string_view>

#include "memlith/heap.hpp"

namespace {

// ---- what lies in the heap

using Recency = memlith::list<memlith::string>;  // keys; the one used last in front
struct Entry {
  memlith::string value;
  Recency::iterator recent;
};
struct Cache {
  memlith::unordered_map<memlith::string, Entry> entries;
  Recency recent;
  std::uint64_t bytes = 0;  // of keys and values

  const memlith::string* get(const std::string& key) {
    const auto found = entries.find(key);
    if (found == entries.end()) return nullptr;
    recent.splice(recent.begin(), recent, found->second.recent);
    return &found->second.value;
  }
  bool remove(const std::string& key) {
    const auto found = entries.find(key);
    if (found == entries.end()) return false;
    bytes -= key.size() + found->second.value.size();
    recent.erase(found->second.recent);
    entries.erase(found);
    return true;
  }
  void put(const std::string& key, std::string_view value, std::uint64_t bytes_max) {
    remove(key);
    while (!recent.empty() && bytes + key.size() + value.size() > bytes_max) remove(std::string(recent.back()));
    recent.emplace_front(key);
    try {
      entries.emplace(key, Entry{memlith::string(value), recent.begin()});
    } catch (const std::bad_alloc&) {
      recent.pop_front();
      throw;
    }
    bytes += key.size() + value.size();
  }
};

// ---- the server

struct Reply {
  evhttp_request* request;  // null: the connection is gone
  int code;
  std::string body;
};

struct Server {
  memlith::Heap heap;
  Cache* cache;
  std::uint64_t bytes_max;
  event* persist_soon = nullptr;
  bool changed = false;
  std::list<Reply> waiting{};  // for the persist
};

void send(const Reply& reply) {
  if (reply.request == nullptr) return;
  evhttp_connection_set_closecb(evhttp_request_get_connection(reply.request), nullptr, nullptr);
  evbuffer* const body = evbuffer_new();
  evbuffer_add(body, reply.body.data(), reply.body.size());
  evhttp_send_reply(reply.request, reply.code, nullptr, body);
  evbuffer_free(body);
}

void persist(evutil_socket_t, short, void* argument) {
  Server& server = *static_cast<Server*>(argument);
  if (auto done = server.heap.persist(); !done) {
    std::fprintf(stderr, "cache: %s\n", done.error().message().c_str());
    std::exit(1);  // nothing of this was acknowledged
  }
  server.changed = false;
  for (const Reply& reply : std::exchange(server.waiting, {})) send(reply);
}

Reply answer(Server& server, evhttp_request* request) {
  const char* const path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
  char* const decoded = evhttp_uridecode(path == nullptr ? "/" : path, 0, nullptr);
  const std::string key(decoded == nullptr || *decoded == 0 ? "" : decoded + 1);
  std::free(decoded);
  if (key.empty()) return {request, HTTP_BADREQUEST, "the path is the key, as in /photo\n"};
  switch (evhttp_request_get_command(request)) {
    case EVHTTP_REQ_GET: {
      const memlith::string* const value = server.cache->get(key);
      if (value == nullptr) return {request, HTTP_NOTFOUND, ""};
      return {request, HTTP_OK, std::string(*value)};
    }
    case EVHTTP_REQ_PUT: {
      evbuffer* const body = evhttp_request_get_input_buffer(request);
      const std::size_t bytes = evbuffer_get_length(body);
      if (key.size() + bytes > server.bytes_max) return {request, HTTP_ENTITYTOOLARGE, ""};
      server.changed = true;
      const auto* const value = reinterpret_cast<const char*>(evbuffer_pullup(body, -1));
      try {
        server.cache->put(key, bytes == 0 ? std::string_view() : std::string_view(value, bytes), server.bytes_max);
      } catch (const std::bad_alloc& full) {  // the key is gone from the cache, as if it had been evicted
        return {request, HTTP_SERVUNAVAIL, full.what()};
      }
      return {request, HTTP_NOCONTENT, ""};
    }
    default:
      if (!server.cache->remove(key)) return {request, HTTP_NOTFOUND, ""};
      server.changed = true;
      return {request, HTTP_NOCONTENT, ""};
  }
}

void serve(evhttp_request* request, void* argument) {
  Server& server = *static_cast<Server*>(argument);
  Reply reply = answer(server, request);
  if (!server.changed) return send(reply);
  server.waiting.push_back(std::move(reply));
  const auto forget = [](evhttp_connection*, void* gone) { static_cast<Reply*>(gone)->request = nullptr; };
  evhttp_connection_set_closecb(evhttp_request_get_connection(request), forget, &server.waiting.back());
  event_active(server.persist_soon, EV_TIMEOUT, 0);  // runs after the requests that have arrived by now
}

int failed(const std::string& why) {
  std::fprintf(stderr, "cache: %s\n", why.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) return failed("usage: cache FILE [PORT] [MEBIBYTES]");
  const auto port = static_cast<std::uint16_t>(argc > 2 ? std::atoi(argv[2]) : 8080);
  const auto mebibytes = static_cast<std::uint64_t>(argc > 3 ? std::atoi(argv[3]) : 256);
  auto heap = memlith::Heap::open_file(argv[1], {.create = true, .max_size = (2 * mebibytes + 64) << 20});
  if (!heap) return failed(heap.error().message());
  auto cache = heap->root<Cache>();
  if (!cache) return failed(cache.error().message());
  Server server{std::move(*heap), *cache, mebibytes << 20};

  event_base* const base = event_base_new();
  server.persist_soon = event_new(base, -1, 0, persist, &server);
  evhttp* const http = evhttp_new(base);
  evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE);
  evhttp_set_gencb(http, serve, &server);
  evhttp_bound_socket* const bound = evhttp_bind_socket_with_handle(http, "127.0.0.1", port);
  if (bound == nullptr) return failed("port " + std::to_string(port) + " is taken");
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  (void)::getsockname(evhttp_bound_socket_get_fd(bound), reinterpret_cast<sockaddr*>(&address), &bytes);
  std::printf("%zu values; http://localhost:%d\n", server.cache->entries.size(), ntohs(address.sin_port));
  std::fflush(stdout);
  event_base_dispatch(base);  // until the process is killed, in whatever way
}
