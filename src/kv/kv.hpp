// A transactional key-value store in a region. Floor: kv. include/memlith/kv.h states the contract of each call.
//
// A commit applies the writes of its transaction to the trees under the writer's lock: the order of these applications
// is the order of the commits. WeakCommits brings what they changed to the log.
#pragma once

#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kv/open_kv.hpp"
#include "kv/proposal.hpp"
#include "kv/writer_pace.hpp"
#include "region/session.hpp"

namespace memlith::core::kv {

struct KvOptions {
  bool create = false;
  Window window;
  bool manual = false;                // without a thread: nothing but sync commits and persist() makes commits durable
  bool is_volatile = false;           // nothing is logged but the empty kv store of a new region
  bool exclusive = false;             // with `create`: refuse one that is there
  bool compares = false;              // each page with its sum, at its first use
  std::shared_ptr<Board> board = {};  // of a keeper: where its clients read the pages
};

// The check of memlith_verify for a region.
bool holds_kv(const Region& region);

class Kv final : public RegionUser, public OpenKv {
 public:
  // The region is open; it is new, or holds a kv store.
  static Result<std::unique_ptr<Kv>> open(Region& region, const KvOptions& options);
  ~Kv() override;

  [[nodiscard]] Kv* alone() override { return this; }
  [[nodiscard]] Status check_process() const override { return region().store().check_process(); }
  Result<MapNumber> open_map(std::string_view name, bool create, bool exclusive) override;
  Status remove_map(std::string_view name) override;
  Status append(MapNumber number, const NextRecord& next, std::uint64_t& appended) override;
  // For tests: of how many pages a step of a removal is, and what is called after each, without locks.
  void watch_removals(std::uint64_t step, std::function<void()> after_step) {
    removal_step_ = step;
    after_removal_step_ = std::move(after_step);
  }

  Status persist() override { return read_only() ? kOk : weak_commits_.make_durable(newest()); }
  // Tickets of the store.
  Status wait(Lsn ticket) override { return region().store().wait(ticket); }
  Lsn durable_ticket() override;
  Status set_window(Window window) override {
    weak_commits_.set_window(window);
    return kOk;
  }
  Result<KvInfo> info() override;
  // That of the newest commit that is seen.
  Lsn newest_ticket();
  // The number of the newest durable commit.
  std::uint64_t durable() { return read_only() || is_volatile() ? newest() : weak_commits_.durable(); }

  // ---- of a keeper

  // The root's map as the newest commit left it. Null: there is none, as far as clients have opened it.
  [[nodiscard]] const MapEntry* map_with_root(PageNumber root);
  // Commits what a client proposes. Nothing else commits meanwhile. Returns the number of the commit, which took effect
  // as a weak one; `ticket` as Transaction::commit(). Errors: conflict - what was read is not as it was; and those of
  // Transaction::commit().
  Result<std::uint64_t> commit_proposal(const Proposal& proposal, Durability durability, Lsn& ticket);
  // A keeper's commit that frees some pages of removed maps and ranges. False: none is left, or it cannot be done now.
  bool free_some();
  WeakCommits& weak_commits() { return weak_commits_; }
  // Makes everything durable; nothing else is done with the store then but to destroy it. When the log has no room for
  // commits that wait, nothing has ended: the store goes on, and can be stopped later. Destroying it loses them.
  Status stop() override;
  Status release_for_limit(Region& region) override;
  [[nodiscard]] bool stopped() const { return stopped_; }

  Result<KvReport> verify() override;
  StoreHeader header();
  [[nodiscard]] bool read_only() const override { return region().store().read_only(); }
  [[nodiscard]] bool is_volatile() const { return !pages_.writer.logs(); }
  [[nodiscard]] Region& region() const { return pages_.words.region(); }
  [[nodiscard]] std::uint64_t log_bytes_max() const override { return region().store().log_limit_bytes() / 2; }
  void set_open_region(OpenRegion* region) { open_region_ = region; }
  [[nodiscard]] OpenRegion* open_region() const { return open_region_; }

  // Every page has to be looked at anew.
  void view_moved() override;
  Status check_idle() override;

 private:
  friend class KvPart;
  explicit Kv(Region& region) : OpenKv(false), weak_commits_(pages_, region.store().collectors()) {}
  [[nodiscard]] Status check_begin(bool only_reads) override;
  [[nodiscard]] Status check_reads() const override { return region().store().check_homes(); }
  Result<std::uint64_t> commit(Transaction& transaction, Durability durability, Lsn* ticket) override;
  struct Estimate {
    Writer::Need room;
    std::uint64_t log_bytes = 0;
    std::uint64_t leaves = 0;
    bool in_leaves = false;  // it changes these and long values in their pages, nothing else: it cannot fail
  };
  static constexpr std::uint64_t kRemovalStep = 256;  // pages
  Status append_step(MapNumber number, const MapEntry& map, std::span<const Write> writes);
  Result<MapNumber> number_of(PageNumber root, Stamp created) MEMLITH_REQUIRES(maps_mutex_);
  Status check_map_of(PageNumber root, Stamp view);
  Status validate(const Proposal& proposal);
  // The pieces that a commit left for the log.
  struct Left {
    Lsn ticket;
    WeakCommits::Wish wish;
    std::optional<WriterPace::Time> rest_until;
  };
  // Between the commits of a long call. Without locks.
  void keep_to_memory();
  // Applies a transaction's writes. Returns the number of the commit.
  Result<std::uint64_t> apply(const LockSet& locks, Durability durability, Left& left);
  // The same as a part of a frame, in steps (KvPart). The locks are held from prepare_joint() on, which returns the
  // bytes for the frame at most, until end_joint(), cancel_joint() or give_up_joint(). apply_joint() reserves room in
  // the frame, and has changed nothing if it fails.
  Result<std::uint64_t> prepare_joint(const LockSet& locks);
  Result<Batch::Front> apply_joint(const LockSet& locks, JointFrame& frame);
  void end_joint(const Batch::Front& front, Lsn end);
  void cancel_joint() { weak_commits_.let_part_go(); }
  void give_up_joint();
  // Looks for the places of the writes that are not known, beside other commits. Returns on how many leaves they are,
  // as far as known.
  std::uint64_t find_places(const LockSet& locks);
  // Releases memory if the transactions and a commit that changes this number of leaves do not fit beside the copies.
  void make_memory(std::uint64_t leaves);
  // Errors: full - the commit under way, of a transaction with these locks, has no memory to go on.
  [[nodiscard]] Status check_memory(const LockSet& locks) MEMLITH_REQUIRES(writing);
  // The needs of the commit. Every page that it will need is sound.
  Status estimate(const LockSet& locks, Estimate& needs) MEMLITH_REQUIRES(writing);
  // True if it is a commit in leaves. `needs` has no meaning otherwise.
  bool estimate_in_leaves(const LockSet& locks, Estimate& needs) MEMLITH_REQUIRES(writing);
  Status make_ready(const Estimate& estimate, bool joint = false) MEMLITH_REQUIRES(writing);
  template <class Act>
  Status each_removed(const LockSet& locks, Act&& act) MEMLITH_REQUIRES(writing);
  Status write_all(const LockSet& locks, bool in_leaves) MEMLITH_REQUIRES(writing);
  Result<std::uint64_t> create_map(std::string_view name, PageNumber& map);
  // The commit that takes a map's name away. `lost`: why pages of it stay lost.
  Status take_map_out(MapEntry& map, std::string_view name, Status& lost);
  // Frees what removed maps and ranges have left, in steps. Errors: corrupt - and all that is sound was freed.
  Status free_removed() MEMLITH_REQUIRES(removal_mutex_);
  Status free_step() MEMLITH_REQUIRES(removal_mutex_);
  // The same after a commit, whose answer it is not.
  void free_removed_later() noexcept;
  // One commit: `change`, which returns a Status, changes pages, for which there is room. Errors: no_memory, and those
  // of `change` - nothing has changed, but a number of a commit was used up.
  template <class Change>
  Result<std::uint64_t> change_pages(bool sure, Change&& change) MEMLITH_REQUIRES(writing);
  // The same for a commit that a thread waits for.
  template <class Change>
  Result<std::uint64_t> change_map(Change&& change) MEMLITH_REQUIRES(writing);

  WeakCommits weak_commits_;
  OpenRegion* open_region_ = nullptr;
  bool manual_ = false;
  Mutex stop_mutex_;            // not while memory is released
  bool stopped_ = true;         // also before it runs: then there is nothing to make durable
  bool joint_applied_ = false;  // between prepare_joint() and the end of that commit
  WriterPace pace_ MEMLITH_GUARDED_BY(writing);
  Mutex removal_mutex_;  // held while a map is removed, and while pages of removed ones are freed
  std::uint64_t removal_step_ = kRemovalStep;
  std::function<void()> after_removal_step_;
  std::unordered_map<PageNumber, MapNumber> number_of_root_ MEMLITH_GUARDED_BY(maps_mutex_);  // of maps that are there
};

}  // namespace memlith::core::kv
