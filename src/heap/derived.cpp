#include "heap/derived.hpp"

#include <new>

namespace memlith::core {

namespace {

std::size_t list_of(const void* address, std::size_t lists) {
  return static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(address) * 0x9e3779b97f4a7c15 >> 40) % lists;
}

}  // namespace

template <class Use>
void DerivedObjects::for_each(const Use& use) const {
  const Lists* const lists = lists_.load(std::memory_order_acquire);
  for (std::size_t list = 0; lists != nullptr && list < kLists; ++list) {
    for (Place* place = lists[list].load(std::memory_order_acquire); place != nullptr;) {
      Place* const next = place->next;
      use(*place);
      place = next;
    }
  }
}

DerivedObjects::~DerivedObjects() {
  drop_all();
  for_each([](Place& place) { delete &place; });
  delete[] lists_.load();
}

DerivedObjects::Place* DerivedObjects::place_of(const void* address) const {
  const Lists* const lists = lists_.load(std::memory_order_acquire);
  if (lists == nullptr) return nullptr;
  Place* place = lists[list_of(address, kLists)].load(std::memory_order_acquire);
  while (place != nullptr && place->address != address) place = place->next;
  return place;
}

Derived* DerivedObjects::find(const void* address) const {
  const Place* const place = place_of(address);
  return place == nullptr ? nullptr : place->object.load(std::memory_order_acquire);
}

Derived* DerivedObjects::set(const void* address, Derived* old, Derived* made) {
  Place* place = place_of(address);
  if (place == nullptr) {
    if (old != nullptr || made == nullptr) return nullptr;
    Lists* lists = lists_.load(std::memory_order_acquire);
    if (lists == nullptr) {
      auto* const fresh = new (std::nothrow) Lists[kLists]();
      if (fresh == nullptr) return nullptr;
      const bool first = lists_.compare_exchange_strong(lists, fresh, std::memory_order_acq_rel);
      if (first) lists = fresh;
      if (!first) delete[] fresh;
    }
    Lists& list = lists[list_of(address, kLists)];
    Place* head = list.load(std::memory_order_acquire);
    auto* const mine = new (std::nothrow) Place{address, head, made};
    if (mine == nullptr) return nullptr;
    if (list.compare_exchange_strong(head, mine, std::memory_order_acq_rel)) return made;
    delete mine;  // another thread was faster, perhaps with this address
    return set(address, old, made);
  }
  Derived* there = old;
  return place->object.compare_exchange_strong(there, made, std::memory_order_acq_rel) ? made : there;
}

void DerivedObjects::drop_all() {
  for_each([](Place& place) {
    Derived* const object = place.object.exchange(nullptr, std::memory_order_acq_rel);
    if (object != nullptr) object->drop(object);
  });
}

void DerivedObjects::leave_all() {
  for_each([](Place& place) { place.object.store(nullptr, std::memory_order_release); });
}

Status DerivedObjects::check(const HeapMemory& memory) const {
  Status found = kOk;
  for_each([&](const Place& place) {
    const Derived* const object = place.object.load(std::memory_order_acquire);
    if (object == nullptr || object->check == nullptr || !found.ok()) return;
    char sentence[256] = "";
    const void* const wrong = object->check(object, sentence, sizeof sentence);
    if (wrong == nullptr) return;
    const auto offset = reinterpret_cast<std::uintptr_t>(wrong) - reinterpret_cast<std::uintptr_t>(memory.base());
    found = memory.corrupt(offset, sentence);
  });
  return found;
}

}  // namespace memlith::core
