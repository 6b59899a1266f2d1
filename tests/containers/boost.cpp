// Containers of Boost.Container and Boost.Unordered. See containers.hpp.
#include <boost/container/deque.hpp>
#include <boost/container/flat_map.hpp>
#include <boost/container/flat_set.hpp>
#include <boost/container/list.hpp>
#include <boost/container/map.hpp>
#include <boost/container/set.hpp>
#include <boost/container/slist.hpp>
#include <boost/container/small_vector.hpp>
#include <boost/container/stable_vector.hpp>
#include <boost/container/string.hpp>
#include <boost/container/vector.hpp>
#include <boost/unordered_map.hpp>
#include <boost/unordered_set.hpp>

#include "containers.hpp"

namespace bc = boost::container;

template <class T>
using In = memlith::allocator<T>;
using String = bc::basic_string<char, std::char_traits<char>, In<char>>;
template <class Key, class T>
using Pair = std::pair<const Key, T>;
using Hash = memlith::hash<memlith::string>;

struct All {
  int count = 0;
  bc::vector<String, In<String>> vector;
  bc::small_vector<int, 4, In<int>> small_vector;
  bc::stable_vector<String, In<String>> stable_vector;
  bc::deque<String, In<String>> deque;
  bc::list<String, In<String>> list;
  bc::slist<int, In<int>> slist;
  bc::map<String, String, std::less<>, In<Pair<String, String>>> map;
  bc::multimap<int, int, std::less<>, In<Pair<int, int>>> multimap;
  bc::set<String, std::less<>, In<String>> set;
  bc::flat_map<String, String, std::less<>, In<std::pair<String, String>>> flat_map;
  bc::flat_set<String, std::less<>, In<String>> flat_set;
  boost::unordered_map<memlith::string, memlith::string, Hash, std::equal_to<>,
                       In<Pair<memlith::string, memlith::string>>>
      unordered_map;
  boost::unordered_set<memlith::string, Hash, std::equal_to<>, In<memlith::string>> unordered_set;

  template <class Visit>
  void each(Visit visit) {
    visit("vector", vector);
    visit("small_vector", small_vector);
    visit("stable_vector", stable_vector);
    visit("deque", deque);
    visit("list", list);
    visit("slist", slist);
    visit("map", map);
    visit("multimap", multimap);
    visit("set", set);
    visit("flat_map", flat_map);
    visit("flat_set", flat_set);
    visit("unordered_map", unordered_map);
    visit("unordered_set", unordered_set);
  }
};

int main(int argc, char** argv) { return containers::run<All>(argc, argv); }
