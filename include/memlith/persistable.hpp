// memlith: which types may live in a heap or a region, and the compiler's sentence about one that may not.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "memlith/layout.hpp"

namespace memlith {

// True if an object of type T may live in a region. A region's bytes come back in another process, so T must not own
// memory of the process (std::string, std::vector, std::unique_ptr), and T must not have virtual functions, because the
// pointer to their table is another one in each run. Of an aggregate (a struct without constructors) each member must
// pass, however deeply it is nested. Another class passes if it can be copied as bytes and needs no destructor.
// Plain pointers pass, because pointers into the region stay valid: a region lies at the same address in every run.
// Pointers to functions do not pass. Pointers to memory outside of the region, std::string_view among them, do not stay
// valid, which the compiler cannot see: MEMLITH_CHECK_POINTERS=1 finds them at run time.
//
// A class of your own that keeps everything it owns in the region, such as a container whose allocator allocates there,
// passes if you declare it:  template <> struct memlith::is_persistable<MyTree> : std::true_type {};
template <class T>
struct is_persistable;

namespace detail {
// A destructor that the members do not account for gives something back.
template <class T, class... Member>
constexpr bool all_persistable(std::type_identity<std::tuple<Member...>>) {
  return (is_persistable<Member>::value && ...) &&
         std::is_trivially_destructible_v<T> == (std::is_trivially_destructible_v<Member> && ...);
}
template <class T>
constexpr bool looks_persistable() {
  if constexpr (!std::is_object_v<T> || std::is_polymorphic_v<T> || std::is_member_pointer_v<T> ||
                std::is_function_v<std::remove_pointer_t<T>>) {
    return false;
  } else if constexpr (has_known_members_v<T>) {
    return all_persistable<T>(members_of_t<T>());
  } else {
    return std::is_trivially_destructible_v<T> &&
           (std::is_trivially_copyable_v<T> || std::is_trivially_copy_constructible_v<T>);
  }
}
}  // namespace detail

template <class T>
struct is_persistable : std::bool_constant<detail::looks_persistable<T>()> {};
template <class T>
struct is_persistable<const T> : is_persistable<T> {};
template <class T, std::size_t Count>
struct is_persistable<T[Count]> : is_persistable<T> {};
template <class T>
inline constexpr bool is_persistable_v = is_persistable<T>::value;

// ---- the reason

namespace detail {

// A struct that contains itself, such as a tree of vectors, is not yet known while its members are looked at. The other
// members decide then.
template <class T>
constexpr bool persistable_or_open() {
  if constexpr (requires { is_persistable<T>::value; }) {
    return is_persistable<T>::value;
  } else {
    return true;
  }
}

// The number of the first that may not live in a region, counted from 1; 0 if all may.
template <class... Part>
constexpr std::size_t first_refused(std::type_identity<std::tuple<Part...>>) {
  std::size_t number = 0;
  std::size_t refused = 0;
  ((++number, refused = refused == 0 && !is_persistable<std::remove_cvref_t<Part>>::value ? number : refused), ...);
  return refused;
}
template <class... Part>
constexpr auto parts_as_tuple(Arguments<Part...>) {
  return std::type_identity<std::tuple<Part...>>();
}
template <class T>
constexpr auto parts_of() {
  if constexpr (has_known_members_v<T>) {
    return members_of_t<T>();
  } else if constexpr (requires { sizeof(typename T::value_type[std::tuple_size<T>::value]); }) {  // std::array
    return std::type_identity<std::tuple<typename T::value_type>>();
  } else if constexpr (requires { std::tuple_size<T>::value; }) {  // a pair or tuple
    return parts_as_tuple(typename arguments_of<T>::type());
  } else {
    return std::type_identity<std::tuple<>>();
  }
}
template <class T>
using parts_of_t = typename decltype(parts_of<T>())::type;

template <class T>
constexpr bool refuses_elements() {
  if constexpr (requires { requires sizeof(typename T::allocator_type) > 0 && sizeof(typename T::value_type) > 0; }) {
    return !is_persistable<typename T::value_type>::value;
  } else {
    return false;
  }
}

// `auto`, so that the compiler looks into the function at the call, and names the reasons from the outside in.
template <class T>
constexpr auto refuse();

// T is a parameter because a compiler complains once about each instance.
template <std::size_t kNumber, class T>
constexpr auto refuse_part() {
#define MEMLITH_REFUSE_MEMBER(number)                                                                           \
  static_assert(kNumber != number, "memlith: an object of this type cannot live in a heap. Its member " #number \
                                   " cannot: the next error says why")
  MEMLITH_REFUSE_MEMBER(1);
  MEMLITH_REFUSE_MEMBER(2);
  MEMLITH_REFUSE_MEMBER(3);
  MEMLITH_REFUSE_MEMBER(4);
  MEMLITH_REFUSE_MEMBER(5);
  MEMLITH_REFUSE_MEMBER(6);
  MEMLITH_REFUSE_MEMBER(7);
  MEMLITH_REFUSE_MEMBER(8);
  MEMLITH_REFUSE_MEMBER(9);
  MEMLITH_REFUSE_MEMBER(10);
  MEMLITH_REFUSE_MEMBER(11);
  MEMLITH_REFUSE_MEMBER(12);
  MEMLITH_REFUSE_MEMBER(13);
  MEMLITH_REFUSE_MEMBER(14);
  MEMLITH_REFUSE_MEMBER(15);
  MEMLITH_REFUSE_MEMBER(16);
  MEMLITH_REFUSE_MEMBER(17);
  MEMLITH_REFUSE_MEMBER(18);
  MEMLITH_REFUSE_MEMBER(19);
  MEMLITH_REFUSE_MEMBER(20);
  MEMLITH_REFUSE_MEMBER(21);
  MEMLITH_REFUSE_MEMBER(22);
  MEMLITH_REFUSE_MEMBER(23);
  MEMLITH_REFUSE_MEMBER(24);
#undef MEMLITH_REFUSE_MEMBER
  refuse<std::remove_cvref_t<std::tuple_element_t<kNumber - 1, parts_of_t<T>>>>();
}

template <class T>
inline constexpr bool never = false;

template <class T>
constexpr auto refuse() {
  if constexpr (std::is_array_v<T>) {
    refuse<std::remove_cv_t<std::remove_all_extents_t<T>>>();
  } else if constexpr (std::is_member_pointer_v<T> || std::is_function_v<std::remove_pointer_t<T>>) {
    static_assert(never<T>,
                  "memlith: an object of this type cannot live in a heap. It is a pointer to code, which lies "
                  "elsewhere in the next run: keep a number or a name, and look the function up");
  } else if constexpr (std::is_polymorphic_v<T>) {
    static_assert(never<T>,
                  "memlith: an object of this type cannot live in a heap. It has virtual functions: their table lies "
                  "in the program, elsewhere in the next run. Keep the kind as a number, and switch on it");
  } else if constexpr (constexpr std::size_t kRefused = first_refused(parts_of<T>()); kRefused != 0) {
    refuse_part<kRefused, T>();
  } else if constexpr (has_known_members_v<T>) {
    static_assert(never<T>,
                  "memlith: an object of this type cannot live in a heap. It has a destructor of its own, so it may "
                  "own memory of the process. If all that it owns lies in the heap, specialise "
                  "memlith::is_persistable");
  } else if constexpr (requires(const T& each) { each.valueless_by_exception(); }) {
    static_assert(never<T>,
                  "memlith: an object of this type cannot live in a heap. It is a std::variant with an alternative "
                  "that is more than plain bytes. If each alternative may live in a heap, specialise "
                  "memlith::is_persistable for the variant");
  } else if constexpr (std::is_aggregate_v<T> && takes<T, 0, AnyBase<T>>()) {
    static_assert(never<T>,
                  "memlith: an object of this type cannot live in a heap. It has a base class, so the compiler cannot "
                  "list its members. Make the base the first member; or, if all members may live in a heap, specialise "
                  "memlith::is_persistable for the type");
  } else if constexpr (std::is_aggregate_v<T> && takes<T, kMembersMax, AnyMember>()) {
    static_assert(never<T>,
                  "memlith: an object of this type cannot live in a heap. It has more than 24 members, too many to "
                  "look at. Put some of them into a struct of their own; or, if all members may live in a heap, "
                  "specialise memlith::is_persistable for the type");
  } else if constexpr (constexpr bool kRefusesElements = refuses_elements<T>(); kRefusesElements) {
    static_assert(!kRefusesElements,
                  "memlith: an object of this type cannot live in a heap. It is a container, and its elements cannot: "
                  "the next error says why");
    refuse<std::remove_cv_t<typename T::value_type>>();
  } else if constexpr (requires { typename T::allocator_type; }) {
    static_assert(never<T>,
                  "memlith: an object of this type cannot live in a heap. It is a container that owns memory of the "
                  "process (std::string, std::vector), or whose elements, comparison or hash cannot live in a heap. "
                  "Use memlith::string, memlith::vector and so on, and comparisons without state");
  } else if constexpr (!std::is_aggregate_v<T>) {
    static_assert(
        never<T>,
        "memlith: an object of this type cannot live in a heap. It has a constructor or private members, so the "
        "compiler cannot list its members, and it needs a destructor or a copy of its own, so it may own memory of the "
        "process (as std::unique_ptr). Give members their first values where they are declared, instead of a "
        "constructor; or, if all members may live in a heap, specialise memlith::is_persistable");
  } else {
    static_assert(never<T>,
                  "memlith: an object of this type cannot live in a heap. The compiler cannot list its members (an "
                  "anonymous union?). If all of them may live in a heap, specialise memlith::is_persistable for it");
  }
}

// Does not compile if T may not live in a heap or be the root of a region, and says why.
template <class T>
constexpr void require_persistable() {
  if constexpr (!is_persistable<T>::value) refuse<T>();
}

}  // namespace detail
}  // namespace memlith
