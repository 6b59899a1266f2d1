// The data structures of `bench pmdk`, the same for all sides: a list, a b-tree of order 8, a hash table. `Memory` says
// where they lie: it names references, allocates, frees, and hears of every change before it is made.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

namespace pmdk_bench {

template <class Memory>
class List {
  struct Node;
  using Ref = typename Memory::template Ref<Node>;
  struct Node {
    Ref next;
    std::uint64_t value;
  };

 public:
  struct Root {
    Ref first;
    std::uint64_t count;
  };

  List(Memory& memory, Root* root) : memory_(memory), root_(root) {}

  void insert(std::uint64_t value) {
    const Ref made = memory_.template allocate<Node>();
    Node* const node = memory_.get(made);
    memory_.fresh(node, sizeof *node);
    node->next = root_->first;
    node->value = value;
    memory_.change(root_, sizeof *root_);
    root_->first = made;
    ++root_->count;
  }
  void remove_first() {
    const Ref gone = root_->first;
    memory_.change(root_, sizeof *root_);
    root_->first = memory_.get(gone)->next;
    --root_->count;
    memory_.release(gone);
  }
  [[nodiscard]] std::uint64_t sum() const {
    std::uint64_t result = 0;
    for (Ref at = root_->first; memory_.is(at); at = memory_.get(at)->next) result += memory_.get(at)->value;
    return result;
  }

 private:
  Memory& memory_;
  Root* root_;
};

// Nodes have up to 7 keys and 8 children. Insertion splits full nodes on its way down, removal fills poor ones.
template <class Memory>
class BTree {
  static constexpr int kLeast = 4;
  static constexpr int kMost = 2 * kLeast - 1;
  struct Node;
  using Ref = typename Memory::template Ref<Node>;
  struct Item {
    std::uint64_t key;
    std::uint64_t value;
  };
  struct Node {
    std::uint64_t count;
    std::uint64_t leaf;
    std::array<Item, kMost> items;
    std::array<Ref, kMost + 1> children;
  };

 public:
  struct Root {
    Ref top;
  };

  BTree(Memory& memory, Root* root) : memory_(memory), root_(root) {}

  [[nodiscard]] bool find(std::uint64_t key, std::uint64_t& value) const {
    for (Ref at = root_->top; memory_.is(at);) {
      const Node* const node = memory_.get(at);
      const std::uint64_t place = place_in(node, key);
      if (place < node->count && node->items[place].key == key) {
        value = node->items[place].value;
        return true;
      }
      if (node->leaf != 0) return false;
      at = node->children[place];
    }
    return false;
  }

  void insert(std::uint64_t key, std::uint64_t value) {
    if (!memory_.is(root_->top)) {
      const Ref made = make(true);
      memory_.change(root_, sizeof *root_);
      root_->top = made;
    }
    if (memory_.get(root_->top)->count == kMost) {
      const Ref made = make(false);
      memory_.get(made)->children[0] = root_->top;
      memory_.change(root_, sizeof *root_);
      root_->top = made;
      split(memory_.get(made), 0);
    }
    Node* node = memory_.get(root_->top);
    for (;;) {
      std::uint64_t place = place_in(node, key);
      if (place < node->count && node->items[place].key == key) {
        memory_.change(&node->items[place], sizeof(Item));
        node->items[place].value = value;
        return;
      }
      if (node->leaf != 0) {
        open_gap(node, place);
        node->items[place] = {key, value};
        return;
      }
      if (memory_.get(node->children[place])->count == kMost) {
        split(node, place);
        if (node->items[place].key == key) continue;
        if (node->items[place].key < key) ++place;
      }
      node = memory_.get(node->children[place]);
    }
  }

  bool remove(std::uint64_t key) {
    if (!memory_.is(root_->top)) return false;
    const bool removed = remove_below(memory_.get(root_->top), key);
    Node* const top = memory_.get(root_->top);
    if (top->count > 0) return removed;
    const Ref old = root_->top;
    memory_.change(root_, sizeof *root_);
    root_->top = top->leaf != 0 ? Ref{} : top->children[0];
    memory_.release(old);
    return removed;
  }

 private:
  static std::uint64_t place_in(const Node* node, std::uint64_t key) {
    std::uint64_t place = 0;
    while (place < node->count && node->items[place].key < key) ++place;
    return place;
  }
  Ref make(bool leaf) {
    const Ref made = memory_.template allocate<Node>();
    Node* const node = memory_.get(made);
    memory_.fresh(node, sizeof *node);
    std::memset(static_cast<void*>(node), 0, sizeof *node);
    node->leaf = leaf ? 1 : 0;
    return made;
  }
  // The bytes that change when items from `place` on move, with the children behind them.
  void will_move(Node* node, std::uint64_t place, std::uint64_t end) {
    memory_.change(&node->count, sizeof node->count);
    if (place < end) memory_.change(&node->items[place], (end - place) * sizeof(Item));
    if (node->leaf == 0) memory_.change(&node->children[place], (end + 1 - place) * sizeof(Ref));
  }
  void open_gap(Node* node, std::uint64_t place) {
    will_move(node, place, node->count + 1);
    for (std::uint64_t at = node->count; at > place; --at) node->items[at] = node->items[at - 1];
    if (node->leaf == 0) {
      for (std::uint64_t at = node->count + 1; at > place + 1; --at) node->children[at] = node->children[at - 1];
    }
    ++node->count;
  }
  // Takes the item at `place` out, and the child behind it.
  void close_gap(Node* node, std::uint64_t place) {
    will_move(node, place, node->count);
    for (std::uint64_t at = place; at + 1 < node->count; ++at) node->items[at] = node->items[at + 1];
    if (node->leaf == 0) {
      for (std::uint64_t at = place + 1; at < node->count; ++at) node->children[at] = node->children[at + 1];
    }
    --node->count;
  }
  void split(Node* parent, std::uint64_t place) {
    Node* const left = memory_.get(parent->children[place]);
    const Ref made = make(left->leaf != 0);
    Node* const right = memory_.get(made);
    for (int i = 0; i < kLeast - 1; ++i) right->items[i] = left->items[i + kLeast];
    if (left->leaf == 0) {
      for (int i = 0; i < kLeast; ++i) right->children[i] = left->children[i + kLeast];
    }
    right->count = kLeast - 1;
    memory_.change(&left->count, sizeof left->count);
    left->count = kLeast - 1;
    open_gap(parent, place);
    parent->items[place] = left->items[kLeast - 1];
    parent->children[place + 1] = made;
  }

  bool remove_below(Node* node, std::uint64_t key) {
    for (;;) {
      const std::uint64_t place = place_in(node, key);
      const bool here = place < node->count && node->items[place].key == key;
      if (node->leaf != 0) {
        if (here) close_gap(node, place);
        return here;
      }
      if (here) return remove_inner(node, place);
      node = memory_.get(node->children[fill(node, place)]);
    }
  }
  bool remove_inner(Node* node, std::uint64_t place) {
    const std::uint64_t key = node->items[place].key;
    Node* const left = memory_.get(node->children[place]);
    Node* const right = memory_.get(node->children[place + 1]);
    if (left->count < kLeast && right->count < kLeast) {
      merge(node, place);
      return remove_below(left, key);
    }
    const bool from_left = left->count >= kLeast;
    Node* at = from_left ? left : right;
    while (at->leaf == 0) at = memory_.get(at->children[from_left ? at->count : 0]);
    const Item next = at->items[from_left ? at->count - 1 : 0];
    memory_.change(&node->items[place], sizeof(Item));
    node->items[place] = next;
    return remove_below(from_left ? left : right, next.key);
  }
  // Gives the child one key more than the least; returns where the child is then.
  std::uint64_t fill(Node* node, std::uint64_t place) {
    Node* const child = memory_.get(node->children[place]);
    if (child->count >= kLeast) return place;
    if (place > 0) {
      Node* const left = memory_.get(node->children[place - 1]);
      if (left->count >= kLeast) {
        open_gap(child, 0);
        if (child->leaf == 0) {
          child->children[1] = child->children[0];
          child->children[0] = left->children[left->count];
        }
        child->items[0] = node->items[place - 1];
        memory_.change(&node->items[place - 1], sizeof(Item));
        node->items[place - 1] = left->items[left->count - 1];
        memory_.change(&left->count, sizeof left->count);
        --left->count;
        return place;
      }
    }
    if (place < node->count) {
      Node* const right = memory_.get(node->children[place + 1]);
      if (right->count >= kLeast) {
        open_gap(child, child->count);
        child->items[child->count - 1] = node->items[place];
        if (child->leaf == 0) child->children[child->count] = right->children[0];
        memory_.change(&node->items[place], sizeof(Item));
        node->items[place] = right->items[0];
        const Ref first = right->leaf == 0 ? right->children[1] : Ref{};
        close_gap(right, 0);
        if (right->leaf == 0) right->children[0] = first;
        return place;
      }
      merge(node, place);
      return place;
    }
    merge(node, place - 1);
    return place - 1;
  }
  // The child behind `place` and the item there join the child before it.
  void merge(Node* node, std::uint64_t place) {
    const Ref gone = node->children[place + 1];
    Node* const left = memory_.get(node->children[place]);
    Node* const right = memory_.get(gone);
    will_move(left, left->count, left->count + 1 + right->count);
    left->items[left->count] = node->items[place];
    for (std::uint64_t i = 0; i < right->count; ++i) left->items[left->count + 1 + i] = right->items[i];
    if (left->leaf == 0) {
      for (std::uint64_t i = 0; i <= right->count; ++i) left->children[left->count + 1 + i] = right->children[i];
    }
    left->count += right->count + 1;
    close_gap(node, place);
    memory_.release(gone);
  }

  Memory& memory_;
  Root* root_;
};

template <class Memory>
class HashTable {
 public:
  static constexpr std::uint64_t kBuckets = 1 << 17;
  static constexpr std::uint64_t kValueBytes = 100;

 private:
  struct Node;
  using Ref = typename Memory::template Ref<Node>;
  struct Node {
    Ref next;
    std::uint64_t key;
    std::array<char, kValueBytes> value;
  };

 public:
  struct Buckets {
    std::array<Ref, kBuckets> first;
  };
  struct Root {
    typename Memory::template Ref<Buckets> buckets;
  };

  HashTable(Memory& memory, Root* root) : memory_(memory), root_(root) {}

  void make() {
    const auto made = memory_.template allocate<Buckets>();
    memory_.fresh(memory_.get(made), sizeof(Buckets));
    std::memset(static_cast<void*>(memory_.get(made)), 0, sizeof(Buckets));
    memory_.change(root_, sizeof *root_);
    root_->buckets = made;
  }
  bool get(std::uint64_t key, char* value) const {
    const Node* const node = find(key);
    if (node != nullptr) std::memcpy(value, node->value.data(), kValueBytes);
    return node != nullptr;
  }
  void put(std::uint64_t key, const char* value) {
    if (Node* const node = find(key); node != nullptr) {
      memory_.change(node->value.data(), kValueBytes);
      std::memcpy(node->value.data(), value, kValueBytes);
      return;
    }
    const Ref made = memory_.template allocate<Node>();
    Node* const node = memory_.get(made);
    memory_.fresh(node, sizeof *node);
    Ref& bucket = memory_.get(root_->buckets)->first[bucket_of(key)];
    node->next = bucket;
    node->key = key;
    std::memcpy(node->value.data(), value, kValueBytes);
    memory_.change(&bucket, sizeof bucket);
    bucket = made;
  }
  // Reads `count` records from the key's bucket on.
  std::uint64_t scan(std::uint64_t key, std::uint64_t count, char* value) const {
    std::uint64_t found = 0;
    const Buckets* const buckets = memory_.get(root_->buckets);
    for (std::uint64_t at = bucket_of(key), seen = 0; found < count && seen < kBuckets; ++at, ++seen) {
      for (Ref each = buckets->first[at % kBuckets]; memory_.is(each) && found < count; ++found) {
        const Node* const node = memory_.get(each);
        std::memcpy(value, node->value.data(), kValueBytes);
        each = node->next;
      }
    }
    return found;
  }

 private:
  static std::uint64_t bucket_of(std::uint64_t key) { return key * 0x9e3779b97f4a7c15u >> 47; }
  Node* find(std::uint64_t key) const {
    for (Ref at = memory_.get(root_->buckets)->first[bucket_of(key)]; memory_.is(at);) {
      Node* const node = memory_.get(at);
      if (node->key == key) return node;
      at = node->next;
    }
    return nullptr;
  }

  Memory& memory_;
  Root* root_;
};

}  // namespace pmdk_bench
