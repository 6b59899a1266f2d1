// A key-value server over HTTP, in the manner of Kyoto Tycoon: records in a Kyoto Cabinet database. The program knows
// nothing of memlith; `memlith run` makes its database crash-proof as it is.
//
//   tycoon DATABASE [PORT] [HOW]           prints the port; 0 is any free one
//   memlith run --match '*.kch' --commit fsync -- tycoon records.kch
//   curl -X PUT --data-binary hello localhost:1978/greeting
//   curl localhost:1978/greeting
//   curl -X DELETE localhost:1978/greeting
//
// DATABASE: *.kch is a HashDB, any other name a TreeDB. HOW: `synchronize` (Kyoto's synchronize behind each batch of
// changes: by itself a power cut in the middle breaks the database), or `transactions` (its hard transactions).
// All requests that arrive together share one of these, and their replies go out when it has returned.
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <kchashdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <list>
#include <memory>
#include <string>
#include <utility>

namespace {

using kyotocabinet::BasicDB;

struct Reply {
  evhttp_request* request;  // null: the connection is gone
  int code;
  std::string body;
};

struct Server {
  std::unique_ptr<BasicDB> database;
  bool in_transactions = false;
  event* keep_soon = nullptr;
  bool changed = false;        // since it was made durable
  std::list<Reply> waiting{};  // for that
};

int failed(const std::string& why) {
  std::fprintf(stderr, "tycoon: %s\n", why.c_str());
  return 1;
}

void must(bool done, const Server& server) {
  if (done) return;
  std::exit(failed(server.database->error().message()));  // nothing that waits was acknowledged
}

void send(const Reply& reply) {
  if (reply.request == nullptr) return;
  evhttp_connection_set_closecb(evhttp_request_get_connection(reply.request), nullptr, nullptr);
  evbuffer* const body = evbuffer_new();
  evbuffer_add(body, reply.body.data(), reply.body.size());
  evhttp_send_reply(reply.request, reply.code, nullptr, body);
  evbuffer_free(body);
}

void change(Server& server) {
  if (!server.changed && server.in_transactions) must(server.database->begin_transaction(true), server);
  server.changed = true;
}

void keep(evutil_socket_t, short, void* argument) {
  Server& server = *static_cast<Server*>(argument);
  must(server.in_transactions ? server.database->end_transaction(true) : server.database->synchronize(true), server);
  server.changed = false;
  for (const Reply& reply : std::exchange(server.waiting, {})) send(reply);
}

Reply answer(Server& server, evhttp_request* request) {
  const char* const path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
  char* const decoded = evhttp_uridecode(path == nullptr ? "/" : path, 0, nullptr);
  const std::string key(decoded == nullptr || *decoded == 0 ? "" : decoded + 1);
  std::free(decoded);
  if (key.empty()) return {request, HTTP_BADREQUEST, "the path is the key, as in /greeting\n"};
  std::string value;
  switch (evhttp_request_get_command(request)) {
    case EVHTTP_REQ_GET:
      if (!server.database->get(key, &value)) return {request, HTTP_NOTFOUND, ""};
      return {request, HTTP_OK, std::move(value)};
    case EVHTTP_REQ_PUT: {
      evbuffer* const body = evhttp_request_get_input_buffer(request);
      const std::size_t bytes = evbuffer_get_length(body);
      if (bytes > 0) value.assign(reinterpret_cast<const char*>(evbuffer_pullup(body, -1)), bytes);
      change(server);
      must(server.database->set(key, value), server);
      return {request, HTTP_NOCONTENT, ""};
    }
    default:
      if (server.database->check(key) < 0) return {request, HTTP_NOTFOUND, ""};
      change(server);
      must(server.database->remove(key), server);
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
  event_active(server.keep_soon, EV_TIMEOUT, 0);  // runs after the requests that have arrived by now
}

std::unique_ptr<BasicDB> open_database(const std::string& path) {
  std::unique_ptr<BasicDB> database;
  if (path.ends_with(".kch")) {
    database = std::make_unique<kyotocabinet::HashDB>();
  } else {
    database = std::make_unique<kyotocabinet::TreeDB>();
  }
  return database->open(path, BasicDB::OWRITER | BasicDB::OCREATE) ? std::move(database) : nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 3 ? argv[3] : "synchronize";
  if (argc < 2 || argc > 4 || (how != "synchronize" && how != "transactions")) {
    return failed("usage: tycoon DATABASE [PORT] [synchronize|transactions]");
  }
  Server server{open_database(argv[1]), how == "transactions"};
  if (server.database == nullptr) return failed(std::string(argv[1]) + " cannot be opened");
  const auto port = static_cast<std::uint16_t>(argc > 2 ? std::atoi(argv[2]) : 1978);
  event_base* const base = event_base_new();
  server.keep_soon = event_new(base, -1, 0, keep, &server);
  evhttp* const http = evhttp_new(base);
  evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE);
  evhttp_set_gencb(http, serve, &server);
  evhttp_bound_socket* const bound = evhttp_bind_socket_with_handle(http, "127.0.0.1", port);
  if (bound == nullptr) return failed("port " + std::to_string(port) + " is taken");
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  (void)::getsockname(evhttp_bound_socket_get_fd(bound), reinterpret_cast<sockaddr*>(&address), &bytes);
  std::printf("%lld records; http://localhost:%d\n", static_cast<long long>(server.database->count()),
              ntohs(address.sin_port));
  std::fflush(stdout);
  event_base_dispatch(base);  // until the process is killed, in whatever way
}
