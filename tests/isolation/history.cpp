#include "isolation/history.hpp"

#include <algorithm>
#include <array>

namespace memlith::test {

namespace {

enum class Edge : std::uint8_t { ww, wr, rw, predicate, time, order };
constexpr std::array kEdgeNames{"ww", "wr", "rw", "rw (scan)", "time", "order"};
constexpr std::array kKinds{"G0", "G1c", "G2-item", "G2", "strictness", "order"};
constexpr std::size_t kNobody = ~std::size_t{0};

// A state of a record. It is there from the writer's number on, up to the next version's.
struct Version {
  std::size_t writer = kNobody;  // of none: it was there before
  std::uint64_t number = 0;
  Seen value;
};

class Checker {
 public:
  explicit Checker(const History& history) : history_(history), edges_(history.transactions.size()) {}

  std::optional<Anomaly> run() {
    collect_versions();
    for (std::size_t i = 0; i < history_.transactions.size() && !found_; ++i) {
      if (history_.transactions[i].committed) follow(i);
    }
    if (found_) return found_;
    add_orders();
    for (std::size_t kinds = 0; kinds < kKinds.size(); ++kinds) {
      if (auto cycle = find_cycle(static_cast<Edge>(kinds)); !cycle.empty()) return Anomaly{kKinds[kinds], cycle};
    }
    return std::nullopt;
  }

 private:
  struct Target {
    std::size_t to = 0;
    Edge kind = Edge::ww;
    std::string key;
  };
  struct Written {
    std::size_t writer = kNobody;
    bool last = false;  // of its transaction, for that key
  };

  void collect_versions() {
    for (const std::string& key : history_.keys) {
      const auto old = history_.before.find(key);
      versions_[key].push_back({kNobody, 0, old == history_.before.end() ? Seen() : Seen(old->second)});
    }
    for (const auto& [key, value] : history_.before) written_[value] = {kNobody, true};
    for (std::size_t i = 0; i < history_.transactions.size(); ++i) {
      const Recorded& each = history_.transactions[i];
      std::map<std::string, Seen> last;
      for (const Action& action : each.actions) {
        if (action.kind == Action::Kind::removal) remove_range(action, last);
        if (action.kind != Action::Kind::write) continue;
        if (const auto before = last.find(action.key); before != last.end() && before->second) {
          written_[*before->second].last = false;
        }
        if (action.value) written_[*action.value] = {i, true};
        last[action.key] = action.value;
      }
      if (!each.committed) continue;
      for (const auto& [key, value] : last) versions_[key].push_back({i, each.number, value});
    }
    for (auto& [key, all] : versions_) {
      std::sort(all.begin(), all.end(), [](const Version& a, const Version& b) { return a.number < b.number; });
      for (std::size_t i = 2; i < all.size(); ++i) add(all[i - 1].writer, all[i].writer, Edge::ww, key);
    }
  }

  // Applies the removal to a transaction's writes, by key.
  void remove_range(const Action& removal, std::map<std::string, Seen>& written) {
    for (const std::string& key : history_.keys) {
      if (key < removal.key || key > removal.end) continue;
      const auto before = written.find(key);
      if (before != written.end() && before->second) written_[*before->second].last = false;
      written[key] = std::nullopt;
    }
  }

  void follow(std::size_t self) {
    std::map<std::string, Seen> own;
    for (const Action& action : history_.transactions[self].actions) {
      switch (action.kind) {
        case Action::Kind::write: own[action.key] = action.value; break;
        case Action::Kind::read: see(self, own, action.key, action.value, false); break;
        case Action::Kind::differs: see_other(self, own, action.key, action.value); break;
        case Action::Kind::removal:
          count(self, own, action);
          remove_range(action, own);
          break;
        case Action::Kind::scan:
          for (const std::string& key : history_.keys) {
            if (key < action.key || key > action.end) continue;
            const auto at = action.found.find(key);
            see(self, own, key, at == action.found.end() ? Seen() : Seen(at->second), true);
          }
      }
      if (found_) return;
    }
  }

  void see(std::size_t self, const std::map<std::string, Seen>& own, const std::string& key, const Seen& value,
           bool by_scan) {
    if (const auto mine = own.find(key); mine != own.end()) {
      if (mine->second != value) report("own", self, key, value, "did not see what it had written itself");
      return;
    }
    const std::vector<Version>& all = versions_.at(key);
    std::size_t index = kNobody;
    if (value) {
      const auto writer = written_.find(*value);
      if (writer == written_.end()) return report("nobody", self, key, value, "which no transaction wrote");
      const std::size_t who = writer->second.writer;
      if (who != kNobody && !history_.transactions[who].committed) {
        return report("G1a", self, key, value, "of a transaction that did not commit");
      }
      if (!writer->second.last) return report("G1b", self, key, value, "which was overwritten by its own transaction");
      for (index = 0; index < all.size() && all[index].value != value;) ++index;
      if (index == all.size()) return report("nobody", self, key, value, "which was never in this record");
    } else {
      index = state_seen(self, all, [](const Seen& state) { return !state.has_value(); });
      if (index == kNobody) return;
    }
    saw(self, key, index, by_scan);
  }

  void saw(std::size_t self, const std::string& key, std::size_t index, bool by_scan) {
    const std::vector<Version>& all = versions_.at(key);
    add(all[index].writer, self, Edge::wr, key);
    if (index + 1 < all.size()) add(self, all[index + 1].writer, by_scan ? Edge::predicate : Edge::rw, key);
  }

  void see_other(std::size_t self, const std::map<std::string, Seen>& own, const std::string& key, const Seen& value) {
    if (const auto mine = own.find(key); mine != own.end()) {
      if (mine->second == value) report("own", self, key, value, "not, though it had written that itself");
      return;
    }
    const std::size_t index = state_seen(self, versions_.at(key), [&](const Seen& state) { return state != value; });
    if (index != kNobody) saw(self, key, index, false);
  }

  // A transaction that wrote took place between two numbers.
  void count(std::size_t self, const std::map<std::string, Seen>& own, const Action& removal) {
    std::uint64_t there = 0;
    for (const std::string& key : history_.keys) {
      if (key < removal.key || key > removal.end) continue;
      const Seen* state = nullptr;
      for (const Version& each : versions_.at(key)) {
        if (each.writer != self && each.number <= history_.transactions[self].from) state = &each.value;
      }
      if (const auto mine = own.find(key); mine != own.end()) state = &mine->second;
      if (state != nullptr && state->has_value()) ++there;
    }
    if (there == removal.count) return;
    report("count", self, removal.key, std::nullopt,
           "as it removed " + std::to_string(removal.count) + " records of " + std::to_string(there));
  }

  // Which of the states that fit the transaction saw; none if that is open.
  template <class Fits>
  [[nodiscard]] std::size_t state_seen(std::size_t self, const std::vector<Version>& all, const Fits& fits) const {
    const Recorded& seer = history_.transactions[self];
    std::vector<std::size_t> fitting;
    std::vector<std::size_t> then;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!fits(all[i].value)) continue;
      fitting.push_back(i);
      const std::uint64_t end = i + 1 < all.size() ? all[i + 1].number : ~std::uint64_t{0};
      if (all[i].number <= seer.to && seer.from < end) then.push_back(i);
    }
    if (then.size() == 1) return then[0];
    if (!then.empty() || fitting.empty()) return kNobody;
    // None was there then: the last one before, or the first one behind.
    std::size_t best = fitting[0];
    for (const std::size_t i : fitting) {
      if (all[i].number <= seer.to) best = i;
    }
    return best;
  }

  void add_orders() {
    const auto& all = history_.transactions;
    std::vector<std::size_t> writers;
    for (std::size_t a = 0; a < all.size(); ++a) {
      if (!all[a].committed) continue;
      if (all[a].wrote) writers.push_back(a);
      for (std::size_t b = 0; b < all.size(); ++b) {
        if (all[b].committed && all[a].ended < all[b].began) add(a, b, Edge::time, "");
      }
    }
    std::sort(writers.begin(), writers.end(),
              [&](std::size_t a, std::size_t b) { return all[a].number < all[b].number; });
    for (std::size_t i = 1; i < writers.size(); ++i) add(writers[i - 1], writers[i], Edge::order, "");
  }

  void add(std::size_t from, std::size_t to, Edge kind, const std::string& key) {
    if (from != kNobody && to != kNobody && from != to) edges_[from].push_back({to, kind, key});
  }

  // A cycle of edges up to that kind, in words.
  std::string find_cycle(Edge most) {
    enum : std::uint8_t { fresh, open, done };
    std::vector<std::uint8_t> state(edges_.size(), fresh);
    struct Step {
      std::size_t node;
      std::size_t next;
    };
    for (std::size_t root = 0; root < edges_.size(); ++root) {
      if (state[root] != fresh) continue;
      std::vector<Step> path{{root, 0}};
      state[root] = open;
      while (!path.empty()) {
        Step& step = path.back();
        if (step.next == edges_[step.node].size()) {
          state[step.node] = done;
          path.pop_back();
          continue;
        }
        const Target& target = edges_[step.node][step.next++];
        if (target.kind > most || state[target.to] == done) continue;
        if (state[target.to] == fresh) {
          state[target.to] = open;
          path.push_back({target.to, 0});
          continue;
        }
        std::string text = "T" + std::to_string(target.to);
        auto at = std::find_if(path.begin(), path.end(), [&](const Step& each) { return each.node == target.to; });
        for (; at != path.end(); ++at) {
          const Target& edge = edges_[at->node][at->next - 1];
          text += " -" + std::string(kEdgeNames[static_cast<std::size_t>(edge.kind)]) + " " + edge.key + "-> T" +
                  std::to_string(edge.to);
        }
        return text;
      }
    }
    return "";
  }

  void report(const char* kind, std::size_t self, const std::string& key, const Seen& value, const std::string& what) {
    if (found_) return;
    found_ = Anomaly{kind, "T" + std::to_string(self) + " saw " + key + " = " +
                               value.value_or("nothing").substr(0, 12) + ", " + what};
  }

  const History& history_;
  std::map<std::string, std::vector<Version>> versions_;
  std::map<std::string, Written> written_;  // by value
  std::vector<std::vector<Target>> edges_;
  std::optional<Anomaly> found_;
};

}  // namespace

std::optional<Anomaly> find_anomaly(const History& history) { return Checker(history).run(); }

std::map<std::string, std::string> content_after(const History& history, std::uint64_t number) {
  std::vector<const Recorded*> writers;
  for (const Recorded& each : history.transactions) {
    if (each.committed && each.wrote && each.number <= number) writers.push_back(&each);
  }
  std::sort(writers.begin(), writers.end(), [](const Recorded* a, const Recorded* b) { return a->number < b->number; });
  std::map<std::string, std::string> content = history.before;
  for (const Recorded* each : writers) {
    for (const Action& action : each->actions) {
      if (action.kind == Action::Kind::removal) {
        content.erase(content.lower_bound(action.key), content.upper_bound(action.end));
      }
      if (action.kind != Action::Kind::write) continue;
      if (action.value) {
        content[action.key] = *action.value;
      } else {
        content.erase(action.key);
      }
    }
  }
  return content;
}

}  // namespace memlith::test
