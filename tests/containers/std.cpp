// The containers of the standard library, and those that are made for pages. See containers.hpp.
#include "containers.hpp"
#include "memlith/btree.hpp"
#include "memlith/flat_hash.hpp"

struct All {
  int count = 0;
  memlith::vector<int> vector;
  memlith::vector<memlith::string> strings;
  memlith::deque<memlith::string> deque;
  memlith::list<memlith::string> list;
  memlith::forward_list<memlith::string> forward_list;
  memlith::map<memlith::string, memlith::string> map;
  memlith::multimap<int, memlith::string> multimap;
  memlith::set<memlith::string> set;
  memlith::multiset<int> multiset;
  memlith::unordered_map<memlith::string, int> unordered_map;
  memlith::unordered_multimap<int, memlith::string> unordered_multimap;
  memlith::unordered_set<memlith::string> unordered_set;
  memlith::unordered_multiset<memlith::string> unordered_multiset;
  memlith::btree_map<memlith::string, memlith::string> btree_map;
  memlith::btree_set<int> btree_set;
  memlith::flat_hash_map<memlith::string, int> flat_hash_map;
  memlith::flat_hash_set<memlith::string> flat_hash_set;

  template <class Visit>
  void each(Visit visit) {
    visit("vector", vector);
    visit("vector of strings", strings);
    visit("deque", deque);
    visit("list", list);
    visit("forward_list", forward_list);
    visit("map", map);
    visit("multimap", multimap);
    visit("set", set);
    visit("multiset", multiset);
    visit("unordered_map", unordered_map);
    visit("unordered_multimap", unordered_multimap);
    visit("unordered_set", unordered_set);
    visit("unordered_multiset", unordered_multiset);
    visit("btree_map", btree_map);
    visit("btree_set", btree_set);
    visit("flat_hash_map", flat_hash_map);
    visit("flat_hash_set", flat_hash_set);
  }
};

int main(int argc, char** argv) { return containers::run<All>(argc, argv); }
