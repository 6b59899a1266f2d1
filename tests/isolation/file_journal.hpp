// A journal that a process writes to a file, which is there when the process was killed.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "isolation/client.hpp"

namespace memlith::test {

// A transaction, and whether its outcome is known.
struct Noted {
  Recorded recorded;
  bool is_known = true;
};

class FileJournal final : public Journal {
 public:
  FileJournal(const std::string& path, Counters& counters)
      : Journal(&counters), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {}
  ~FileJournal() override { ::close(file_); }

  void commits(const Recorded& recorded) override { note(recorded, false); }
  void add(Recorded recorded) override {
    note(recorded, true);
    ++counters().ended;
  }

  // In the order of their beginnings. A note that was cut short is none.
  static std::vector<Noted> read(std::string_view bytes) {
    std::vector<Noted> all;
    while (bytes.size() >= sizeof(std::uint64_t)) {
      Taker from{bytes};
      const auto size = from.take<std::uint64_t>();
      if (from.rest.size() < size) break;
      from.rest = from.rest.substr(0, size);
      bytes.remove_prefix(sizeof size + size);
      const bool is_known = from.take<bool>();
      if (!all.empty() && !all.back().is_known) all.pop_back();  // this is how it went
      all.push_back({from.take_recorded(), is_known});
    }
    return all;
  }

 private:
  struct Putter {
    std::string bytes;
    template <class T>
    void put(const T& value) {
      static_assert(std::is_trivially_copyable_v<T>);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void put_text(std::string_view text) {
      put(text.size());
      bytes.append(text);
    }
    void put_action(const Action& action) {
      put(action.kind);
      put_text(action.key);
      put(action.value.has_value());
      if (action.value) put_text(*action.value);
      put_text(action.end);
      put(action.found.size());
      for (const auto& [key, value] : action.found) {
        put_text(key);
        put_text(value);
      }
      put(action.count);
    }
  };
  struct Taker {
    std::string_view rest;
    template <class T>
    T take() {
      T value{};
      if (rest.size() < sizeof value) {
        ADD_FAILURE() << "a journal is damaged";
        return value;
      }
      std::memcpy(&value, rest.data(), sizeof value);
      rest.remove_prefix(sizeof value);
      return value;
    }
    std::string take_text() {
      const auto size = take<std::size_t>();
      std::string text(rest.substr(0, size));
      rest.remove_prefix(text.size());
      return text;
    }
    Action take_action() {
      Action action;
      action.kind = take<Action::Kind>();
      action.key = take_text();
      if (take<bool>()) action.value = take_text();
      action.end = take_text();
      for (auto count = take<std::size_t>(); count > 0; --count) {
        std::string key = take_text();
        action.found.emplace(std::move(key), take_text());
      }
      action.count = take<std::uint64_t>();
      return action;
    }
    Recorded take_recorded() {
      Recorded recorded;
      for (auto count = take<std::size_t>(); count > 0; --count) recorded.actions.push_back(take_action());
      recorded.committed = take<bool>();
      recorded.wrote = take<bool>();
      for (std::uint64_t* const each :
           {&recorded.number, &recorded.from, &recorded.to, &recorded.durable, &recorded.began, &recorded.ended}) {
        *each = take<std::uint64_t>();
      }
      return recorded;
    }
  };

  // In one write, so that little of it is there, or all.
  void note(const Recorded& recorded, bool is_known) const {
    Putter to;
    to.put(is_known);
    to.put(recorded.actions.size());
    for (const Action& each : recorded.actions) to.put_action(each);
    to.put(recorded.committed);
    to.put(recorded.wrote);
    for (const std::uint64_t each :
         {recorded.number, recorded.from, recorded.to, recorded.durable, recorded.began, recorded.ended}) {
      to.put(each);
    }
    Putter note;
    note.put(std::uint64_t{to.bytes.size()});
    note.bytes += to.bytes;
    EXPECT_EQ(::write(file_, note.bytes.data(), note.bytes.size()), static_cast<ssize_t>(note.bytes.size()));
  }

  const int file_;
};

}  // namespace memlith::test
