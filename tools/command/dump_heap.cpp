// Named objects of heaps: from memory to JSON, and from JSON to blocks. Neither bytes of a heap nor those of a dump are
// believed: every pointer leads to the beginning of a block that is large enough, or the object is refused.
#include "dump_heap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "cli/output.hpp"
#include "dump_text.hpp"
#include "dump_type.hpp"
#include "kv.hpp"

namespace memlith::tool {

namespace {

using TreeNode = std::_Rb_tree_node_base;

struct HeapTree {
  const void* heap_base;
  char compare;
  TreeNode ends;
  std::uint64_t size;
};
static_assert(sizeof(HeapTree) == sizeof(std::set<int>) + sizeof(void*));

constexpr std::uint64_t kPersistBytesOfHeap = 64 << 20;
constexpr std::size_t kTreeDepthMax = 128;
constexpr std::string_view kResource = "memlith::resource";  // which the C++ interface makes anew

template <class Number>
Number load_of(const char* at) {
  Number number;
  std::memcpy(&number, at, sizeof number);
  return number;
}

std::string described(const NamedType& object) { return fmt::format("object \"{}\"", object.name); }

Failure not_described(const NamedType& object) {
  return tool_failure(MEMLITH_UNSUPPORTED,
                      fmt::format("{} of a heap has a type that its name does not describe: {}", described(object),
                                  printable(object.type)),
                      "--skip leaves such objects out; --bytes dumps the bytes of heaps, which load at the same "
                      "addresses only; docs/dump.md lists the types.");
}

// ---- to JSON ---------------------------------------------------------------------------------------------------

class HeapReader {
 public:
  // Reads at most so many elements of each container; 0: all.
  explicit HeapReader(memlith_heap* heap, std::uint64_t elements_max)
      : heap_(heap), elements_max_(elements_max == 0 ? UINT64_MAX : elements_max) {}

  // Null, which no value is: the object is damaged.
  Json read(const HeapType& type, const char* at) {
    switch (type.kind) {
      case HeapType::Kind::boolean: return *at != 0;
      case HeapType::Kind::signed_number: return signed_at(type.size, at);
      case HeapType::Kind::unsigned_number: return unsigned_at(type.size, at);
      case HeapType::Kind::floating: return floating_at(type.size, at);
      case HeapType::Kind::text: return text_at(at);
      case HeapType::Kind::vector: return vector_at(type, at);
      case HeapType::Kind::list: return list_at(type, at);
      case HeapType::Kind::tree: return tree_at(type, at);
      case HeapType::Kind::btree: return btree_at(type, at);
      case HeapType::Kind::optional: {
        Json value = Json::array();
        if (at[type.element().size] != 0) value.push_back(read(type.element(), at));
        return value;
      }
      case HeapType::Kind::array: return sequence(type.element(), at, type.count);
      case HeapType::Kind::record: {
        Json value = Json::array();
        for (std::size_t i = 0; i < type.parts.size(); ++i) value.push_back(read(type.parts[i], at + type.offsets[i]));
        return value;
      }
    }
    return damaged();
  }
  [[nodiscard]] bool is_damaged() const { return damaged_; }

 private:
  Json damaged() {
    damaged_ = true;
    return nullptr;
  }
  [[nodiscard]] bool is_block(const void* at, std::uint64_t bytes) const {
    std::uint64_t room = 0;
    return memlith_heap_block_bytes(heap_, at, &room) == MEMLITH_OK && bytes <= room;
  }
  static std::int64_t signed_at(std::uint64_t size, const char* at) {
    switch (size) {
      case 1: return load_of<std::int8_t>(at);
      case 2: return load_of<std::int16_t>(at);
      case 4: return load_of<std::int32_t>(at);
      default: return load_of<std::int64_t>(at);
    }
  }
  static std::uint64_t unsigned_at(std::uint64_t size, const char* at) {
    switch (size) {
      case 1: return load_of<std::uint8_t>(at);
      case 2: return load_of<std::uint16_t>(at);
      case 4: return load_of<std::uint32_t>(at);
      default: return load_of<std::uint64_t>(at);
    }
  }
  // JSON has neither infinities nor NaNs, which are written as their bits.
  static Json floating_at(std::uint64_t size, const char* at) {
    const double value = size == sizeof(float) ? load_of<float>(at) : load_of<double>(at);
    if (std::isfinite(value)) return value;
    return fmt::format("{:#x}", unsigned_at(size, at));
  }
  Json text_at(const char* at) {
    const auto text = load_of<HeapText>(at);
    const bool is_here = text.bytes == at + offsetof(HeapText, here);
    if (is_here ? text.size >= sizeof text.here : !is_block(text.bytes, text.size)) return damaged();
    return escaped({text.bytes, text.size});
  }
  Json sequence(const HeapType& element, const char* at, std::uint64_t count) {
    Json value = Json::array();
    count = std::min(count, elements_max_);
    for (std::uint64_t i = 0; i < count && !damaged_; ++i) value.push_back(read(element, at + i * element.size));
    return value;
  }
  Json vector_at(const HeapType& type, const char* at) {
    const auto vector = load_of<HeapVector>(at);
    const auto bytes = static_cast<std::uint64_t>(vector.end - vector.begin);
    if (bytes == 0) return Json::array();
    if (bytes % type.element().size != 0 || !is_block(vector.begin, bytes)) return damaged();
    return sequence(type.element(), vector.begin, bytes / type.element().size);
  }
  Json list_at(const HeapType& type, const char* at) {
    const auto list = load_of<HeapList>(at);
    const std::uint64_t offset = content_offset(type.element(), sizeof(HeapListNode));
    Json value = Json::array();
    const HeapListNode* node = list.ends.next;
    for (std::uint64_t i = 0; i < list.size && i < elements_max_ && !damaged_; ++i, node = node->next) {
      if (!is_block(node, offset + type.element().size)) return damaged();
      value.push_back(read(type.element(), reinterpret_cast<const char*>(node) + offset));
    }
    return value;
  }
  Json tree_at(const HeapType& type, const char* at) {
    const auto tree = load_of<HeapTree>(at);
    const std::uint64_t offset = content_offset(type.element(), sizeof(TreeNode));
    Json value = Json::array();
    std::vector<const TreeNode*> path;  // whose left subtrees were visited
    const TreeNode* node = tree.ends._M_parent;
    while (!damaged_ && (node != nullptr || !path.empty())) {
      if (node == nullptr) {
        value.push_back(read(type.element(), reinterpret_cast<const char*>(path.back()) + offset));
        node = path.back()->_M_right;
        path.pop_back();
        if (value.size() > tree.size) return damaged();
        if (value.size() == elements_max_) return value;
        continue;
      }
      if (path.size() == kTreeDepthMax || !is_block(node, offset + type.element().size)) return damaged();
      path.push_back(node);
      node = node->_M_left;
    }
    return value.size() == tree.size ? value : damaged();
  }

  Json btree_at(const HeapType& type, const char* at) {
    const detail::TreeRoot* const root = load_of<HeapBtree>(at).root;
    Json value = Json::array();
    if (root == nullptr) return value;
    if (!is_block(root, sizeof *root)) return damaged();
    const detail::LeafLayout layout = detail::leaf_layout(type.element().size, type.element().alignment);
    const detail::LeafHead* leaf = root->first;
    for (std::uint64_t i = 0; i < root->leaves; ++i, leaf = leaf->next) {
      if (!is_block(leaf, layout.bytes) || leaf->count > layout.capacity) return damaged();
      const char* const begin = reinterpret_cast<const char*>(leaf);
      for (std::uint64_t place = 0; place < leaf->count && !damaged_; ++place) {
        const std::uint64_t number =
            unsigned_at(layout.number_bytes, begin + sizeof *leaf + place * layout.number_bytes);
        if (number >= layout.capacity) return damaged();
        if (value.size() == elements_max_) return value;
        value.push_back(read(type.element(), begin + layout.slots_at + number * type.element().size));
      }
      if (damaged_) return nullptr;
    }
    return leaf == nullptr ? value : damaged();
  }

  memlith_heap* heap_;
  const std::uint64_t elements_max_;
  bool damaged_ = false;
};

// ---- from JSON -------------------------------------------------------------------------------------------------

class HeapWriter {
 public:
  explicit HeapWriter(memlith_heap* heap) : heap_(heap), base_(memlith_region_address(memlith_heap_region(heap))) {}

  // A block of zeros; null after a failure.
  char* allocate(std::uint64_t bytes, std::uint64_t alignment) {
    void* block = nullptr;
    if (failure_) return nullptr;
    if (const std::int32_t code = memlith_heap_allocate(heap_, bytes, alignment, &block); code != MEMLITH_OK) {
      failure_ = library_failure(code, "allocating in a heap");
      return nullptr;
    }
    std::memset(block, 0, bytes);
    waiting_bytes_ += bytes;
    return static_cast<char*>(block);
  }
  // Constructs a value where there are zeros.
  void write(const HeapType& type, char* at, const Json& value) {
    if (failure_) return;
    if (waiting_bytes_ >= kPersistBytesOfHeap) persist();
    switch (type.kind) {
      case HeapType::Kind::boolean:
        return value.is_boolean() ? write_number(1, at, value.get<bool>() ? 1 : 0) : refuse(value);
      case HeapType::Kind::signed_number: return write_signed(type.size, at, value);
      case HeapType::Kind::unsigned_number: return write_unsigned(type.size, at, value);
      case HeapType::Kind::floating: return write_floating(type.size, at, value);
      case HeapType::Kind::text: return write_text(at, value);
      case HeapType::Kind::vector: return write_vector(type, at, value);
      case HeapType::Kind::list: return write_list(type, at, value);
      case HeapType::Kind::tree: return write_tree(type, at, value);
      case HeapType::Kind::btree: return write_btree(type, at, value);
      case HeapType::Kind::optional:
        if (!value.is_array() || value.size() > 1) return refuse(value);
        if (value.empty()) return;
        at[type.element().size] = 1;
        return write(type.element(), at, value[0]);
      case HeapType::Kind::array:
        if (!value.is_array() || value.size() != type.count) return refuse(value);
        for (std::size_t i = 0; i < value.size(); ++i) write(type.element(), at + i * type.element().size, value[i]);
        return;
      case HeapType::Kind::record:
        if (!value.is_array() || value.size() != type.parts.size()) return refuse(value);
        for (std::size_t i = 0; i < value.size(); ++i) write(type.parts[i], at + type.offsets[i], value[i]);
        return;
    }
  }
  void persist() {
    waiting_bytes_ = 0;
    const std::int32_t code = failure_ ? MEMLITH_OK : memlith_heap_persist(heap_);
    if (code != MEMLITH_OK) failure_ = library_failure(code, "making a heap durable");
  }
  [[nodiscard]] MaybeFailure failure() const { return failure_; }

 private:
  void refuse(const Json& value) {
    if (failure_) return;
    std::string text = value.dump();
    if (text.size() > 60) text = text.substr(0, 60) + "...";
    failure_ = tool_failure(MEMLITH_INVALID, fmt::format("{} is no value of the type that is named", printable(text)));
  }
  static void write_number(std::uint64_t size, char* at, std::uint64_t number) { std::memcpy(at, &number, size); }
  void write_signed(std::uint64_t size, char* at, const Json& value) {
    const std::int64_t most = static_cast<std::int64_t>(~std::uint64_t{0} >> (65 - 8 * size));
    const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                                                 : value.is_number_integer() && value.get<std::int64_t>() >= -most - 1;
    if (!fits) return refuse(value);
    write_number(size, at, static_cast<std::uint64_t>(value.get<std::int64_t>()));
  }
  void write_unsigned(std::uint64_t size, char* at, const Json& value) {
    const std::uint64_t most = ~std::uint64_t{0} >> (64 - 8 * size);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) return refuse(value);
    write_number(size, at, value.get<std::uint64_t>());
  }
  void write_floating(std::uint64_t size, char* at, const Json& value) {
    if (value.is_string()) {
      const auto bits = number_in(value.get_ref<const std::string&>());
      if (!bits || (size == sizeof(float) && *bits >> 32 != 0)) return refuse(value);
      return write_number(size, at, *bits);
    }
    if (!value.is_number()) return refuse(value);
    const auto number = value.get<double>();
    write_number(size, at,
                 size == sizeof(float) ? std::bit_cast<std::uint32_t>(static_cast<float>(number))
                                       : std::bit_cast<std::uint64_t>(number));
  }
  void write_text(char* at, const Json& value) {
    const auto bytes = value.is_string() ? unescaped(value.get_ref<const std::string&>()) : std::nullopt;
    if (!bytes) return refuse(value);
    auto& text = *reinterpret_cast<HeapText*>(at);
    text.heap_base = base_;
    text.size = bytes->size();
    text.bytes = text.here;
    if (bytes->size() >= sizeof text.here) {
      text.bytes = allocate(bytes->size() + 1, 1);
      if (text.bytes == nullptr) return;
      text.capacity = bytes->size();
    }
    std::memcpy(text.bytes, bytes->data(), bytes->size());
  }
  void write_vector(const HeapType& type, char* at, const Json& value) {
    if (!value.is_array()) return refuse(value);
    auto& vector = *reinterpret_cast<HeapVector*>(at);
    vector.heap_base = base_;
    if (value.empty()) return;
    const std::uint64_t bytes = value.size() * type.element().size;
    char* const block = allocate(bytes, type.element().alignment);
    if (block == nullptr) return;
    vector.begin = block;
    vector.end = vector.end_of_room = block + bytes;
    for (std::size_t i = 0; i < value.size(); ++i) write(type.element(), block + i * type.element().size, value[i]);
  }
  // A node with that content; null after a failure.
  char* node_of(const HeapType& content, std::uint64_t head_bytes, std::uint64_t head_alignment, const Json& value) {
    const std::uint64_t alignment = std::max(head_alignment, content.alignment);
    const std::uint64_t offset = content_offset(content, head_bytes);
    char* const node = allocate((offset + content.size + alignment - 1) / alignment * alignment, alignment);
    if (node != nullptr) write(content, node + offset, value);
    return failure_ ? nullptr : node;
  }
  void write_list(const HeapType& type, char* at, const Json& value) {
    if (!value.is_array()) return refuse(value);
    auto& list = *reinterpret_cast<HeapList*>(at);
    list.heap_base = base_;
    list.ends = {&list.ends, &list.ends};
    for (const Json& each : value) {
      char* const made = node_of(type.element(), sizeof(HeapListNode), alignof(HeapListNode), each);
      if (made == nullptr) return;
      auto* const node = reinterpret_cast<HeapListNode*>(made);
      *node = {&list.ends, list.ends.previous};
      node->previous->next = node;
      list.ends.previous = node;
      ++list.size;
    }
  }
  void write_tree(const HeapType& type, char* at, const Json& value) {
    if (!value.is_array()) return refuse(value);
    auto& tree = *reinterpret_cast<HeapTree*>(at);
    tree.heap_base = base_;
    tree.ends._M_color = std::_S_red;
    tree.ends._M_left = tree.ends._M_right = &tree.ends;
    const HeapType& key = type.is_map ? type.element().parts[0] : type.element();
    const std::uint64_t offset = content_offset(type.element(), sizeof(TreeNode));  // where the key lies, too
    for (const Json& each : value) {
      char* const made = node_of(type.element(), sizeof(TreeNode), alignof(TreeNode), each);
      if (made == nullptr) return;
      TreeNode* const last = tree.ends._M_right;
      if (tree.size > 0) {
        const int order = compare(key, reinterpret_cast<const char*>(last) + offset, made + offset);
        if (order > 0 || (order == 0 && !type.repeats_keys)) return refuse(each);
      }
      // Behind the last one, or to the left of the end if there is none.
      std::_Rb_tree_insert_and_rebalance(tree.size == 0, reinterpret_cast<TreeNode*>(made), last, tree.ends);
      ++tree.size;
    }
  }
  // Full leaves, one behind the other.
  void write_btree(const HeapType& type, char* at, const Json& value) {
    if (!value.is_array()) return refuse(value);
    auto& tree = *reinterpret_cast<HeapBtree*>(at);
    tree.heap_base = base_;
    if (value.empty()) return;
    const HeapType& key = type.is_map ? type.element().parts[0] : type.element();
    const detail::LeafLayout layout = detail::leaf_layout(type.element().size, type.element().alignment);
    auto* const root =
        reinterpret_cast<detail::TreeRoot*>(allocate(sizeof(detail::TreeRoot), alignof(detail::TreeRoot)));
    if (root == nullptr) return;
    root->seal = detail::seal_of(root, detail::kRootSeal);
    tree.root = root;
    const char* before = nullptr;
    for (const Json& each : value) {
      if (root->last == nullptr || root->last->count == layout.capacity) {
        auto* const leaf = reinterpret_cast<detail::LeafHead*>(allocate(layout.bytes, detail::kPageBytes));
        if (leaf == nullptr) return;
        *leaf = {detail::seal_of(leaf, detail::kLeafSeal),
                 root,
                 root->last,
                 nullptr,
                 0,
                 static_cast<std::uint16_t>(layout.capacity),
                 static_cast<std::uint32_t>(layout.bytes)};
        for (std::uint64_t i = 0; i < layout.capacity; ++i) {
          write_number(layout.number_bytes, reinterpret_cast<char*>(leaf + 1) + i * layout.number_bytes, i);
        }
        (root->last == nullptr ? root->first : root->last->next) = leaf;
        root->last = leaf;
        ++root->leaves;
      }
      char* const slot =
          reinterpret_cast<char*>(root->last) + layout.slots_at + root->last->count * type.element().size;
      write(type.element(), slot, each);
      if (failure_) return;
      if (before != nullptr && compare(key, before, slot) >= 0) return refuse(each);
      before = slot;
      ++root->last->count;
    }
  }
  template <class Number>
  static int compare_as(const char* one, const char* other) {
    const auto a = load_of<Number>(one);
    const auto b = load_of<Number>(other);
    return a < b ? -1 : a == b ? 0 : 1;
  }
  static int compare(const HeapType& type, const char* one, const char* other) {
    switch (type.kind) {
      case HeapType::Kind::floating:
        return type.size == sizeof(float) ? compare_as<float>(one, other) : compare_as<double>(one, other);
      case HeapType::Kind::text: {
        const auto a = load_of<HeapText>(one);
        const auto b = load_of<HeapText>(other);
        return std::string_view(a.bytes, a.size).compare({b.bytes, b.size});
      }
      case HeapType::Kind::array:
        for (std::uint64_t i = 0; i < type.count; ++i) {
          const std::uint64_t at = i * type.element().size;
          if (const int order = compare(type.element(), one + at, other + at); order != 0) return order;
        }
        return 0;
      case HeapType::Kind::signed_number:
        switch (type.size) {
          case 1: return compare_as<std::int8_t>(one, other);
          case 2: return compare_as<std::int16_t>(one, other);
          case 4: return compare_as<std::int32_t>(one, other);
          default: return compare_as<std::int64_t>(one, other);
        }
      default:
        switch (type.size) {
          case 1: return compare_as<std::uint8_t>(one, other);
          case 2: return compare_as<std::uint16_t>(one, other);
          case 4: return compare_as<std::uint32_t>(one, other);
          default: return compare_as<std::uint64_t>(one, other);
        }
    }
  }

  memlith_heap* heap_;
  const void* base_;
  std::uint64_t waiting_bytes_ = 0;
  MaybeFailure failure_;
};

// Nothing if the stored sizes are not those of the type: of another standard library, or a struct with gaps of its own.
std::optional<HeapType> type_of_object(const NamedType& object) {
  std::optional<HeapType> type = type_of_name(object.type);
  if (!type || type->size != object.size || type->alignment != object.alignment) return std::nullopt;
  return type;
}

}  // namespace

Result<std::vector<NamedType>> objects_of(memlith_heap* heap) {
  std::vector<NamedType> all;
  const auto add = [](void* context, const char* name, const memlith_type* type, void* object) {
    if (name == kResource) return;
    static_cast<std::vector<NamedType>*>(context)->push_back({name, type->name, type->size, type->alignment,
                                                              type->layout, static_cast<const char*>(object)});
  };
  if (const std::int32_t code = memlith_heap_for_each(heap, add, &all); code != MEMLITH_OK) {
    return library_failure(code, "listing the objects of a heap");
  }
  std::sort(all.begin(), all.end(), [](const NamedType& a, const NamedType& b) { return a.name < b.name; });
  return all;
}

Result<Json> value_of_object(memlith_heap* heap, const NamedType& object, std::uint64_t elements_max) {
  const std::optional<HeapType> type = type_of_object(object);
  if (!type) return not_described(object);
  HeapReader reader(heap, elements_max);
  Json value = reader.read(*type, object.object);
  if (reader.is_damaged()) {
    return tool_failure(MEMLITH_CORRUPT,
                        fmt::format("{} of a heap leads to what is no block of the heap", described(object)),
                        "`memlith verify STORE` checks the heap.");
  }
  return value;
}

Result<std::string> object_as_text(memlith_heap* heap, const NamedType& object) {
  Result<Json> value = value_of_object(heap, object, 0);
  if (!value.ok()) return std::move(value.failure());
  const Json line{{"name", escaped(object.name)},  {"type", escaped(object.type)}, {"size", object.size},
                  {"alignment", object.alignment}, {"layout", object.layout},      {"value", std::move(*value)}};
  return line.dump();
}

MaybeFailure load_named_object(memlith_heap* heap, std::string_view text) {
  const Json line = Json::parse(text, nullptr, false);
  const auto is = [&line](const char* field, bool (Json::*has_type)() const noexcept) {
    return line.is_object() && line.contains(field) && (line[field].*has_type)();
  };
  const bool complete = is("name", &Json::is_string) && is("type", &Json::is_string) &&
                        is("size", &Json::is_number_unsigned) && is("alignment", &Json::is_number_unsigned) &&
                        is("layout", &Json::is_number_unsigned) && line.contains("value");
  if (!complete) {
    return tool_failure(MEMLITH_INVALID,
                        "an object in JSON was expected, with name, type, size, alignment, layout and value");
  }
  const auto name = name_in(line["name"].get_ref<const std::string&>());
  const auto type_name = name_in(line["type"].get_ref<const std::string&>());
  if (!name || !type_name) return tool_failure(MEMLITH_INVALID, "a name has a zero, or a backslash without \\xNN");
  const NamedType object{*name,
                         *type_name,
                         line["size"].get<std::uint64_t>(),
                         line["alignment"].get<std::uint32_t>(),
                         line["layout"].get<std::uint32_t>(),
                         nullptr};
  const std::optional<HeapType> type = type_of_object(object);
  if (!type) return tool_failure(MEMLITH_INVALID, fmt::format("the type of {} is not described", described(object)));
  HeapWriter writer(heap);
  char* const made = writer.allocate(object.size, object.alignment);
  if (made != nullptr) writer.write(*type, made, line["value"]);
  if (MaybeFailure failure = writer.failure()) return failure;
  const memlith_type described_type{sizeof(memlith_type), object.type.c_str(), object.size, object.alignment,
                                    object.layout};
  const std::int32_t code = memlith_heap_set_name(heap, object.name.c_str(), made, &described_type);
  if (code != MEMLITH_OK) return library_failure(code, "naming an object");
  writer.persist();
  return writer.failure();
}

}  // namespace memlith::tool
