// The functions of libstdc++.so that std::map, std::set and std::list call, where no pass has seen the stores. The pass
// leads those calls here. The layout of the nodes is part of libstdc++'s ABI; this file is compiled with the pass.
#include <list>
#include <map>
#include <utility>

namespace {

using Node = std::_Rb_tree_node_base;
using Link = std::__detail::_List_node_base;

Node*& place_of(Node* node, Node& header) {
  Node* const parent = node->_M_parent;
  if (parent == &header) return header._M_parent;
  return parent->_M_left == node ? parent->_M_left : parent->_M_right;
}

// `down` takes the place of its child on the other side of `to_left`.
void rotate(Node* down, bool to_left, Node& header) {
  Node* const up = to_left ? down->_M_right : down->_M_left;
  Node* const between = to_left ? up->_M_left : up->_M_right;
  (to_left ? down->_M_right : down->_M_left) = between;
  if (between != nullptr) between->_M_parent = down;
  place_of(down, header) = up;
  up->_M_parent = down->_M_parent;
  (to_left ? up->_M_left : up->_M_right) = down;
  down->_M_parent = up;
}

bool is_red(const Node* node) { return node != nullptr && node->_M_color == std::_S_red; }

// One black node is missing on the way to `node`, a child of `parent`.
void add_black(Node* node, Node* parent, Node& header) {
  while (node != header._M_parent && !is_red(node)) {
    const bool is_left = parent->_M_left == node;
    Node* sibling = is_left ? parent->_M_right : parent->_M_left;
    if (is_red(sibling)) {
      sibling->_M_color = std::_S_black;
      parent->_M_color = std::_S_red;
      rotate(parent, is_left, header);
      sibling = is_left ? parent->_M_right : parent->_M_left;
    }
    Node* const near = is_left ? sibling->_M_left : sibling->_M_right;
    Node* far = is_left ? sibling->_M_right : sibling->_M_left;
    if (!is_red(near) && !is_red(far)) {
      sibling->_M_color = std::_S_red;
      node = parent;
      parent = node->_M_parent;
      continue;
    }
    if (!is_red(far)) {
      near->_M_color = std::_S_black;
      sibling->_M_color = std::_S_red;
      rotate(sibling, !is_left, header);
      far = sibling;
      sibling = near;
    }
    sibling->_M_color = parent->_M_color;
    parent->_M_color = std::_S_black;
    far->_M_color = std::_S_black;
    rotate(parent, is_left, header);
    break;
  }
  if (node != nullptr) node->_M_color = std::_S_black;
}

// The ends of the tree, before a node with at most one child is taken out of it.
void move_ends(Node* node, Node& header) {
  if (header._M_left == node) {
    header._M_left = node->_M_right != nullptr ? Node::_S_minimum(node->_M_right) : node->_M_parent;
  }
  if (header._M_right == node) {
    header._M_right = node->_M_left != nullptr ? Node::_S_maximum(node->_M_left) : node->_M_parent;
  }
}

}  // namespace

#define HIDDEN extern "C" __attribute__((visibility("hidden")))

HIDDEN void __memlith_wrap__ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_(bool left, Node* node,
                                                                                             Node* parent,
                                                                                             Node& header) {
  node->_M_parent = parent;
  node->_M_left = nullptr;
  node->_M_right = nullptr;
  node->_M_color = std::_S_red;
  if (parent == &header) {
    header._M_parent = header._M_left = header._M_right = node;
  } else if (left) {
    parent->_M_left = node;
    if (header._M_left == parent) header._M_left = node;
  } else {
    parent->_M_right = node;
    if (header._M_right == parent) header._M_right = node;
  }
  while (node != header._M_parent && is_red(node->_M_parent)) {
    parent = node->_M_parent;
    Node* const grandparent = parent->_M_parent;
    const bool is_left = grandparent->_M_left == parent;
    Node* const uncle = is_left ? grandparent->_M_right : grandparent->_M_left;
    grandparent->_M_color = std::_S_red;
    if (is_red(uncle)) {
      parent->_M_color = uncle->_M_color = std::_S_black;
      node = grandparent;
      continue;
    }
    if ((parent->_M_left == node) != is_left) {
      rotate(parent, is_left, header);
      std::swap(node, parent);
    }
    parent->_M_color = std::_S_black;
    rotate(grandparent, !is_left, header);
  }
  header._M_parent->_M_color = std::_S_black;
}

HIDDEN Node* __memlith_wrap__ZSt28_Rb_tree_rebalance_for_erasePSt18_Rb_tree_node_baseRS_(Node* node, Node& header) {
  Node* child = nullptr;
  Node* parent = nullptr;
  std::_Rb_tree_color gone = node->_M_color;
  if (node->_M_left == nullptr || node->_M_right == nullptr) {
    move_ends(node, header);
    child = node->_M_left != nullptr ? node->_M_left : node->_M_right;
    parent = node->_M_parent;
    place_of(node, header) = child;
    if (child != nullptr) child->_M_parent = parent;
  } else {
    // The next node takes the place of this one.
    Node* const next = Node::_S_minimum(node->_M_right);
    gone = next->_M_color;
    child = next->_M_right;
    parent = next;
    if (next->_M_parent != node) {
      parent = next->_M_parent;
      parent->_M_left = child;
      if (child != nullptr) child->_M_parent = parent;
      next->_M_right = node->_M_right;
      next->_M_right->_M_parent = next;
    }
    place_of(node, header) = next;
    next->_M_parent = node->_M_parent;
    next->_M_left = node->_M_left;
    next->_M_left->_M_parent = next;
    next->_M_color = node->_M_color;
  }
  if (gone == std::_S_black) add_black(child, parent, header);
  return node;
}

HIDDEN void __memlith_wrap__ZNSt8__detail15_List_node_base7_M_hookEPS0_(Link* node, Link* before) {
  node->_M_next = before;
  node->_M_prev = before->_M_prev;
  before->_M_prev->_M_next = node;
  before->_M_prev = node;
}

HIDDEN void __memlith_wrap__ZNSt8__detail15_List_node_base9_M_unhookEv(Link* node) {
  node->_M_prev->_M_next = node->_M_next;
  node->_M_next->_M_prev = node->_M_prev;
}

// [first, last) moves to the place before `before`.
HIDDEN void __memlith_wrap__ZNSt8__detail15_List_node_base11_M_transferEPS0_S1_(Link* before, Link* first, Link* last) {
  if (before == last) return;
  Link* const final = last->_M_prev;
  first->_M_prev->_M_next = last;
  last->_M_prev = first->_M_prev;
  Link* const ahead = before->_M_prev;
  ahead->_M_next = first;
  first->_M_prev = ahead;
  final->_M_next = before;
  before->_M_prev = final;
}

HIDDEN void __memlith_wrap__ZNSt8__detail15_List_node_base10_M_reverseEv(Link* head) {
  Link* node = head;
  do {
    std::swap(node->_M_next, node->_M_prev);
    node = node->_M_prev;
  } while (node != head);
}

HIDDEN void __memlith_wrap__ZNSt8__detail15_List_node_base4swapERS0_S1_(Link& a, Link& b) {
  std::swap(a._M_next, b._M_next);
  std::swap(a._M_prev, b._M_prev);
  const auto mend = [](Link& head, const Link& other) {
    if (head._M_next == &other) {
      head._M_next = head._M_prev = &head;
    } else {
      head._M_next->_M_prev = head._M_prev->_M_next = &head;
    }
  };
  mend(a, b);
  mend(b, a);
}
