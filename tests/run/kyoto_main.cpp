// run-kyoto: a Kyoto Cabinet database that is changed and synchronized until the power goes, and what has to be true of
// it afterwards (kyoto_power_test.py). Kyoto Cabinet is as Debian has it.
//
//   run-kyoto write DATABASE ROUNDS   prints the number of each round once its synchronize() has returned
//   run-kyoto check DATABASE ROUND    exits with 0 if the database is whole, of one round, and not older than ROUND
#include <kchashdb.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

using kyotocabinet::BasicDB;
using kyotocabinet::HashDB;
using kyotocabinet::TreeDB;

constexpr int kRecords = 60;

std::string key_of(int i) { return "record-" + std::to_string(i * 7919 % kRecords) + "-" + std::to_string(i); }

// Every record says its round; of a round, all records have been written, and their lengths differ.
std::string value_of(int i, long round) {
  return std::to_string(round) + ":" + std::string(static_cast<std::size_t>((i * 31 + round * 17) % 900), 'v');
}

int fail(const std::string& what) {
  std::printf("%s\n", what.c_str());
  return 1;
}

int write(BasicDB& database, long rounds) {
  std::string last;
  long round = 0;
  if (database.get("round", &last)) round = std::atol(last.c_str());
  for (const long end = round + rounds; round < end;) {
    ++round;
    // Another order in each round, so that its records move.
    for (int n = 0; n < kRecords; ++n) {
      const int i = static_cast<int>((n * 13 + round) % kRecords);
      if (round % 5 == 0 && n % 3 == 0 && !database.remove(key_of(i))) return fail("remove");
      if (!database.set(key_of(i), value_of(i, round))) return fail("set");
    }
    if (!database.set("round", std::to_string(round))) return fail("set");
    if (!database.synchronize(true)) return fail(std::string("synchronize: ") + database.error().message());
    const std::string line = std::to_string(round) + "\n";
    if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) return 1;
  }
  return 0;
}

int check(BasicDB& database, long acknowledged) {
  std::string text;
  if (!database.get("round", &text)) {
    return acknowledged == 0 && database.count() == 0 ? 0 : fail("there is no record \"round\"");
  }
  const long round = std::atol(text.c_str());
  if (round < acknowledged) {
    return fail("round " + text + ", but " + std::to_string(acknowledged) + " was synchronized");
  }
  for (int i = 0; i < kRecords; ++i) {
    if (!database.get(key_of(i), &text)) return fail(key_of(i) + " is missing");
    if (text != value_of(i, round)) return fail(key_of(i) + " is of another round, or damaged: " + text.substr(0, 20));
  }
  // A scan may find a record twice in a HashDB that was synchronized and not closed, also without a crash.
  long seen = 0;
  BasicDB::Cursor* const cursor = database.cursor();
  for (bool more = cursor->jump(); more; more = cursor->step()) ++seen;
  delete cursor;
  if (seen < kRecords + 1 || database.count() != kRecords + 1) {
    return fail("a scan finds " + std::to_string(seen) + " records, and count() says " +
                std::to_string(database.count()));
  }
  return 0;
}

template <class Database>
int run(const std::string& command, const char* path, long number) {
  Database database;
  database.tune_map(1 << 20);
  database.tune_buckets(64);
  // Without a repair: it would hide what was broken, and takes what it finds.
  const unsigned mode = BasicDB::OWRITER | BasicDB::OCREATE | BasicDB::ONOREPAIR;
  if (!database.open(path, mode)) return fail(std::string("open: ") + database.error().message());
  const int result = command == "write" ? write(database, number) : check(database, number);
  return database.close() || result != 0 ? result : fail(std::string("close: ") + database.error().message());
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count != 4) return 2;
  const long number = std::atol(arguments[3]);
  const std::size_t length = std::strlen(arguments[2]);
  const bool is_tree = length > 4 && std::strcmp(arguments[2] + length - 4, ".kct") == 0;
  return is_tree ? run<TreeDB>(arguments[1], arguments[2], number) : run<HashDB>(arguments[1], arguments[2], number);
}
