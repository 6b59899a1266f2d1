#include "foresight.hpp"

namespace memlith::sqlite::shared {

namespace {

// A statement is expected to be followed by a write from this number on. A write sets it to the highest, each time that
// none came lowers it.
constexpr std::uint8_t kExpected = 2;
constexpr std::uint8_t kHighest = 3;

}  // namespace

bool Foresight::begin(const ControlBlock& control) {
  statement_ = kStatements;
  sqlite3* const db = connection();
  if (!on_ || db == nullptr || api_.get_autocommit(db) != 0) return false;
  sqlite3_stmt* statement = api_.next_stmt(db, nullptr);
  while (statement != nullptr && api_.stmt_busy(statement) == 0) statement = api_.next_stmt(db, statement);
  const char* const text = statement != nullptr ? api_.sql(statement) : nullptr;
  if (text == nullptr) return false;
  std::uint32_t hash = 2166136261u;
  for (const char* c = text; *c != 0; ++c) hash = (hash ^ static_cast<unsigned char>(*c)) * 16777619u;
  statement_ = (hash ^ hash >> 12 ^ hash >> 24) % kStatements;
  return control.writes_follow[statement_].load(std::memory_order_relaxed) >= kExpected;
}

void Foresight::note_write(ControlBlock& control) const {
  if (statement_ < kStatements) control.writes_follow[statement_].store(kHighest, std::memory_order_relaxed);
}

void Foresight::note_no_write(ControlBlock& control) const {
  if (statement_ == kStatements) return;
  const std::uint8_t now = control.writes_follow[statement_].load(std::memory_order_relaxed);
  if (now > 0) control.writes_follow[statement_].store(static_cast<std::uint8_t>(now - 1), std::memory_order_relaxed);
}

}  // namespace memlith::sqlite::shared
