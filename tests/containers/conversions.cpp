// Strings of a heap and of the process where the other kind is wanted: each line must compile (conversions.py).
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "memlith/heap.hpp"

void takes(const std::string& text);
void looks_at(std::string_view text);

struct Person {
  memlith::string name;
  int height;
};

void keys(memlith::map<memlith::string, int>& map, memlith::unordered_map<memlith::string, int>& table,
          memlith::map<memlith::string, memlith::vector<memlith::string>>& lists) {
  const std::string key = "a";
  map[key]++;
  map[std::string("b")] = 2;
  map["c"] = 3;
  map.at(key) = 4;
  map.emplace(key, 1);
  map.try_emplace(key, 2);
  map.insert_or_assign(key, 3);
  map.insert({key, 3});
  map.erase(key);
  map.at("c") = map.at(std::string_view("b"));
  map.try_emplace("d", 2);
  map.insert_or_assign("e", 3);
  map.erase("e");
  table.erase("e");
  memlith::set<memlith::string> set{"a", "b"};
  set.insert("c");
  set.insert({"d", "e"});
  set.erase(key);
  (void)map.find(key);
  table[key] = 1;
  (void)table.find(key);
  (void)table.contains(std::string_view("x"));
  lists[key].push_back(key);
  lists[key].emplace_back("z");
  for (const auto& [name, count] : map) takes(name);
}

bool strings(memlith::string& text) {
  const std::string other = "a";
  std::string copy = text;
  copy = text;
  copy += text;
  const std::string again(text);
  takes(text);
  looks_at(text);
  text = other;
  text += other;
  text = "abc";
  text = text + "x" + text;
  text = text.substr(1);
  memlith::string made = other;
  memlith::string made_too(other);
  memlith::string of_letters(3, 'x');
  memlith::string of_view(std::string_view("a"));
  memlith::string braced{other};
  made.swap(made_too);
  std::swap(of_letters, of_view);
  std::stringstream stream;
  stream << text;
  stream >> text;
  std::getline(stream, text);
  Person person{other, 1};
  person.name = "x";
  return text == other && other == text && text == "x" && "x" == text && text < other && other < text && text == text &&
         text <= "x" && text != other && text == std::string_view("x") && braced == made && copy == again;
}

void vectors(memlith::vector<memlith::string>& words) {
  const std::string word = "a";
  words.push_back(word);
  words.insert(words.begin(), word);
  std::vector<std::string> copy(words.begin(), words.end());
  memlith::vector<memlith::string> back(copy.begin(), copy.end());
  words = {"a", "b", word};
}

static_assert(memlith::is_persistable_v<memlith::string> && !memlith::is_persistable_v<std::string>);
static_assert(std::is_nothrow_move_constructible_v<memlith::string>);
static_assert(sizeof(memlith::string) ==
              sizeof(std::basic_string<char, std::char_traits<char>, memlith::allocator<char>>));

// A struct that contains itself is judged by its other members.
struct Tree {
  int number;
  memlith::vector<Tree> children;
};
struct TreeOfProcess {
  memlith::vector<TreeOfProcess> children;
  std::string name;
};
static_assert(memlith::is_persistable_v<Tree> && !memlith::is_persistable_v<TreeOfProcess>);

struct Trie {
  int number;
  memlith::map<memlith::string, Trie> children;
  memlith::vector<std::tuple<int, Trie>> others;
};
struct TrieOfProcess {
  memlith::map<memlith::string, TrieOfProcess> children;
  std::string name;
};
static_assert(memlith::is_persistable_v<Trie> && !memlith::is_persistable_v<TrieOfProcess>);
int grown(const memlith::Heap& heap) {
  auto trie = heap.root<Trie>();
  if (!trie) return 0;
  (*trie)->children["a"].children["b"].number = 7;
  return (*trie)->children["a"].number;
}
