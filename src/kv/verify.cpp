// Checks every page of a kv store. Floor: kv.
#include <algorithm>
#include <optional>

#include "kv/kv.hpp"

namespace memlith::core::kv {

namespace {

class Verifier {
 public:
  Verifier(Words& words, const StoreHeader& header) : words_(words), header_(header), seen_(words.count(), false) {}

  Status run() MEMLITH_REQUIRES(writing) {
    seen_[kHeaderPage] = true;
    MEMLITH_TRY(tree(kCatalogue));
    const std::vector<std::pair<std::string, PageNumber>> maps = std::move(maps_);
    report.records = 0;
    for (const auto& [name, map] : maps) MEMLITH_TRY(tree(map));
    report.maps = maps.size();
    MEMLITH_TRY(removed());
    MEMLITH_TRY(free_list());
    for (PageNumber page = 0; page < seen_.size(); ++page) {
      if (!seen_[page]) return words_.corrupt(page, "it belongs to no map and is not free");
    }
    if (header_.free_pages != report.free_pages || header_.records != report.records) {
      return words_.corrupt(kHeaderPage, "it counts other records or free pages than there are");
    }
    return kOk;
  }
  KvReport report;

 private:
  using Bound = std::optional<std::string>;

  // Marks the page. Errors: corrupt, also if it was marked before.
  Result<const std::byte*> take(PageNumber page) {
    MEMLITH_TRY(words_.sound(page).status());
    if (const std::string_view fault = fault_of_page(words_.bytes_of(page), page, words_.count()); !fault.empty()) {
      return words_.corrupt(page, fault);
    }
    MEMLITH_TRY(mark(page, 1));
    return words_.bytes_of(page);
  }

  Status tree(PageNumber map) MEMLITH_REQUIRES(writing) {
    return node(map, map, kLevelsMax, std::nullopt, std::nullopt);
  }

  // A page of the map, with keys from `low` to below `high`.
  Status node(PageNumber map, PageNumber page, std::uint32_t level_above, const Bound& low, const Bound& high)
      MEMLITH_REQUIRES(writing) {
    MEMLITH_TRY_ASSIGN(const std::byte* const bytes, take(page));
    const PageHeader header = header_of(bytes);
    if (header.map != map || (header.kind != PageKind::leaf && header.kind != PageKind::inner)) {
      return words_.corrupt(page, "it is not of the map that leads to it");
    }
    if (level_above == kLevelsMax ? header.level >= kLevelsMax : header.level + 1u != level_above) {
      return words_.corrupt(page, "its level does not follow its parent's");
    }
    const bool inner = header.kind == PageKind::inner;
    ++(inner ? report.inner_pages : report.leaf_pages);
    report.depth_max = std::max(report.depth_max, header.level + 1u);
    MEMLITH_ASSERT(words_.tags_match(page));
    if (!inner) report.used_bytes += used_bytes(bytes);
    for (std::uint32_t i = 0; i < header.count; ++i) {
      const Cell cell = cell_of(bytes, i);
      const bool first = inner && i == 0;
      if (!first && ((low.has_value() && cell.key < *low) || (high.has_value() && cell.key >= *high))) {
        return words_.corrupt(page, "a key lies outside of the page's range");
      }
      if (!inner) {
        MEMLITH_TRY(record(map, page, cell));
        continue;
      }
      const Bound from = first ? low : Bound(cell.key);
      const Bound to = i + 1 < header.count ? Bound(cell_of(bytes, i + 1).key) : high;
      MEMLITH_TRY(node(map, child_in(cell), header.level, from, to));
    }
    return kOk;
  }

  Status record(PageNumber map, PageNumber page, const Cell& cell) {
    ++report.records;
    if (map == kCatalogue) {
      if (cell.overflow || child_in(cell) <= kCatalogue) return words_.corrupt(page, "a map in it has no number");
      maps_.emplace_back(cell.key, child_in(cell));
    }
    if (!cell.overflow) return kOk;
    const OverflowReference reference = reference_of(cell);
    MEMLITH_TRY(words_.sound_run(reference).status());
    const std::uint64_t pages = pages_of_value(reference.bytes);
    report.overflow_pages += pages;
    return mark(reference.first, pages);
  }

  // The list of pages that were removed, with all that lies below them.
  Status removed() MEMLITH_REQUIRES(writing) {
    for (PageNumber page = header_.removing; page != 0;) {
      MEMLITH_TRY_ASSIGN(const std::byte* const bytes, words_.sound(page));
      const RemovedHeader list = removed_of(bytes);
      MEMLITH_TRY(take(page).status());
      if (list.kind != PageKind::removed) {
        return words_.corrupt(page, "it is in the list of what was removed, and no page of it");
      }
      for (std::uint32_t i = 0; i < list.count; ++i) {
        MEMLITH_TRY(node(list.map, removed_at(bytes, i), kLevelsMax, std::nullopt, std::nullopt));
      }
      page = list.next;
    }
    return kOk;
  }

  Status free_list() {
    for (PageNumber page = header_.free_head; page != 0;) {
      MEMLITH_TRY_ASSIGN(const RunHeader run, words_.sound_free(page));
      if (const std::string_view fault = fault_of_page(words_.bytes_of(page), page, words_.count()); !fault.empty()) {
        return words_.corrupt(page, fault);
      }
      report.free_pages += run.size;
      MEMLITH_TRY(mark(page, run.size));
      page = run.next;
    }
    return kOk;
  }

  Status mark(PageNumber first, std::uint64_t pages) {
    for (std::uint64_t i = 0; i < pages; ++i) {
      if (seen_[first + i]) return words_.corrupt(static_cast<PageNumber>(first + i), "it is in use twice");
      seen_[first + i] = true;
    }
    return kOk;
  }

  Words& words_;
  const StoreHeader header_;
  std::vector<bool> seen_;
  std::vector<std::pair<std::string, PageNumber>> maps_;
};

}  // namespace

Result<KvReport> Kv::verify() {
  const LockGuard lock(pages_.writer.mutex());
  MEMLITH_TRY(pages_.writer.check_header());
  Verifier verifier(pages_.words, pages_.writer.header());
  MEMLITH_TRY(verifier.run());
  return verifier.report;
}

}  // namespace memlith::core::kv
