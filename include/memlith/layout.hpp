// memlith: what the compiler tells of a type's layout: the types of an aggregate's members, however deeply they are
// nested, and the elements of containers. A heap keeps a number made of it with each named object (memlith/heap.hpp),
// so that a changed struct is refused and not misread.
//
// An aggregate is a class without constructors, private members, virtual functions and base classes. One with up to 24
// members is looked into. Of another class the compiler tells the size and the alignment only; give it a number, and
// raise the number when the members change: `static constexpr std::uint32_t memlith_layout = 2;` in the class, or a
// specialisation of memlith::layout_of. An aggregate with an anonymous union needs such a number, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#ifndef __GXX_RTTI
#error "memlith: compile without -fno-rtti: an object is kept with the name of its type. The C interface does without"
#endif

namespace memlith {

template <class T, class = void>
struct layout_of;

namespace detail {

// ---- the members of an aggregate

inline constexpr std::size_t kMembersMax = 24;

struct AnyMember {
  template <class Member>
  constexpr operator Member() const noexcept;  // NOLINT(google-explicit-constructor)
};
// A base class of T, and not T itself, which would be a copy.
template <class T>
struct AnyBase {
  template <class Base>
    requires(std::is_base_of_v<Base, T> && !std::is_same_v<Base, T>)
  constexpr operator Base() const noexcept;  // NOLINT(google-explicit-constructor)
};

// True if T can be made of as many {} as `More` and one more.
template <class T, std::size_t kCount, class... More>
constexpr bool takes() {
  if constexpr (kCount == 0)
    return requires { T{std::declval<More>()...}; };
  else if constexpr (kCount == 1)
    return requires { T{{}, std::declval<More>()...}; };
  else if constexpr (kCount == 2)
    return requires { T{{}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 3)
    return requires { T{{}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 4)
    return requires { T{{}, {}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 5)
    return requires { T{{}, {}, {}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 6)
    return requires { T{{}, {}, {}, {}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 7)
    return requires { T{{}, {}, {}, {}, {}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 8)
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 9)
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 10)
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 11)
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 12)
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 13)
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 14)
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 15)
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 16)
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 17)
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...}; };
  else if constexpr (kCount == 18)
    return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...};
    };
  else if constexpr (kCount == 19)
    return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...};
    };
  else if constexpr (kCount == 20)
    return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...};
    };
  else if constexpr (kCount == 21)
    return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...};
    };
  else if constexpr (kCount == 22)
    return requires {
      T{{},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        {},
        std::declval<More>()...};
    };
  else if constexpr (kCount == 23)
    return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
        {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::declval<More>()...};
    };
  else if constexpr (kCount == 24)
    return requires {
      T{{}, {}, {}, {}, {},
        {}, {}, {}, {}, {},
        {}, {}, {}, {}, {},
        {}, {}, {}, {}, {},
        {}, {}, {}, {}, std::declval<More>()...};
    };
  else
    return false;
}

struct UnknownMembers {};

template <class T, std::size_t kCount = kMembersMax>
constexpr std::size_t count_members() {
  if constexpr (kCount == 0 || takes<T, kCount>()) {
    return kCount;
  } else {
    return count_members<T, kCount - 1>();
  }
}

// A type identity of the tuple of the members' types; UnknownMembers where there may be others.
template <class T>
constexpr auto find_members(T& object) {
  constexpr std::size_t kCount = count_members<T>();
  if constexpr (takes<T, kCount, AnyMember>() || takes<T, 0, AnyBase<T>>()) {
    return UnknownMembers();
  } else if constexpr (kCount == 0) {
    return std::type_identity<std::tuple<>>();
  } else if constexpr (kCount == 1) {
    auto& [m1] = object;
    return std::type_identity<std::tuple<decltype(m1)>>();
  } else if constexpr (kCount == 2) {
    auto& [m1, m2] = object;
    return std::type_identity<std::tuple<decltype(m1), decltype(m2)>>();
  } else if constexpr (kCount == 3) {
    auto& [m1, m2, m3] = object;
    return std::type_identity<std::tuple<decltype(m1), decltype(m2), decltype(m3)>>();
  } else if constexpr (kCount == 4) {
    auto& [m1, m2, m3, m4] = object;
    return std::type_identity<std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4)>>();
  } else if constexpr (kCount == 5) {
    auto& [m1, m2, m3, m4, m5] = object;
    return std::type_identity<std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5)>>();
  } else if constexpr (kCount == 6) {
    auto& [m1, m2, m3, m4, m5, m6] = object;
    return std::type_identity<
        std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5), decltype(m6)>>();
  } else if constexpr (kCount == 7) {
    auto& [m1, m2, m3, m4, m5, m6, m7] = object;
    return std::type_identity<
        std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5), decltype(m6), decltype(m7)>>();
  } else if constexpr (kCount == 8) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8] = object;
    return std::type_identity<std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5),
                                         decltype(m6), decltype(m7), decltype(m8)>>();
  } else if constexpr (kCount == 9) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9] = object;
    return std::type_identity<std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5),
                                         decltype(m6), decltype(m7), decltype(m8), decltype(m9)>>();
  } else if constexpr (kCount == 10) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10] = object;
    return std::type_identity<std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5),
                                         decltype(m6), decltype(m7), decltype(m8), decltype(m9), decltype(m10)>>();
  } else if constexpr (kCount == 11) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11] = object;
    return std::type_identity<
        std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5), decltype(m6), decltype(m7),
                   decltype(m8), decltype(m9), decltype(m10), decltype(m11)>>();
  } else if constexpr (kCount == 12) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12] = object;
    return std::type_identity<
        std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5), decltype(m6), decltype(m7),
                   decltype(m8), decltype(m9), decltype(m10), decltype(m11), decltype(m12)>>();
  } else if constexpr (kCount == 13) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13] = object;
    return std::type_identity<
        std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5), decltype(m6), decltype(m7),
                   decltype(m8), decltype(m9), decltype(m10), decltype(m11), decltype(m12), decltype(m13)>>();
  } else if constexpr (kCount == 14) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14] = object;
    return std::type_identity<std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5),
                                         decltype(m6), decltype(m7), decltype(m8), decltype(m9), decltype(m10),
                                         decltype(m11), decltype(m12), decltype(m13), decltype(m14)>>();
  } else if constexpr (kCount == 15) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15] = object;
    return std::type_identity<std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5),
                                         decltype(m6), decltype(m7), decltype(m8), decltype(m9), decltype(m10),
                                         decltype(m11), decltype(m12), decltype(m13), decltype(m14), decltype(m15)>>();
  } else if constexpr (kCount == 16) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16] = object;
    return std::type_identity<
        std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5), decltype(m6), decltype(m7),
                   decltype(m8), decltype(m9), decltype(m10), decltype(m11), decltype(m12), decltype(m13),
                   decltype(m14), decltype(m15), decltype(m16)>>();
  } else if constexpr (kCount == 17) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17] = object;
    return std::type_identity<
        std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5), decltype(m6), decltype(m7),
                   decltype(m8), decltype(m9), decltype(m10), decltype(m11), decltype(m12), decltype(m13),
                   decltype(m14), decltype(m15), decltype(m16), decltype(m17)>>();
  } else if constexpr (kCount == 18) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18] = object;
    return std::type_identity<
        std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5), decltype(m6), decltype(m7),
                   decltype(m8), decltype(m9), decltype(m10), decltype(m11), decltype(m12), decltype(m13),
                   decltype(m14), decltype(m15), decltype(m16), decltype(m17), decltype(m18)>>();
  } else if constexpr (kCount == 19) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19] = object;
    return std::type_identity<
        std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5), decltype(m6), decltype(m7),
                   decltype(m8), decltype(m9), decltype(m10), decltype(m11), decltype(m12), decltype(m13),
                   decltype(m14), decltype(m15), decltype(m16), decltype(m17), decltype(m18), decltype(m19)>>();
  } else if constexpr (kCount == 20) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20] = object;
    return std::type_identity<std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5),
                                         decltype(m6), decltype(m7), decltype(m8), decltype(m9), decltype(m10),
                                         decltype(m11), decltype(m12), decltype(m13), decltype(m14), decltype(m15),
                                         decltype(m16), decltype(m17), decltype(m18), decltype(m19), decltype(m20)>>();
  } else if constexpr (kCount == 21) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21] = object;
    return std::type_identity<std::tuple<
        decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5), decltype(m6), decltype(m7), decltype(m8),
        decltype(m9), decltype(m10), decltype(m11), decltype(m12), decltype(m13), decltype(m14), decltype(m15),
        decltype(m16), decltype(m17), decltype(m18), decltype(m19), decltype(m20), decltype(m21)>>();
  } else if constexpr (kCount == 22) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22] =
        object;
    return std::type_identity<std::tuple<
        decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5), decltype(m6), decltype(m7), decltype(m8),
        decltype(m9), decltype(m10), decltype(m11), decltype(m12), decltype(m13), decltype(m14), decltype(m15),
        decltype(m16), decltype(m17), decltype(m18), decltype(m19), decltype(m20), decltype(m21), decltype(m22)>>();
  } else if constexpr (kCount == 23) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23] =
        object;
    return std::type_identity<
        std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5), decltype(m6), decltype(m7),
                   decltype(m8), decltype(m9), decltype(m10), decltype(m11), decltype(m12), decltype(m13),
                   decltype(m14), decltype(m15), decltype(m16), decltype(m17), decltype(m18), decltype(m19),
                   decltype(m20), decltype(m21), decltype(m22), decltype(m23)>>();
  } else if constexpr (kCount == 24) {
    auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23,
           m24] = object;
    return std::type_identity<
        std::tuple<decltype(m1), decltype(m2), decltype(m3), decltype(m4), decltype(m5), decltype(m6), decltype(m7),
                   decltype(m8), decltype(m9), decltype(m10), decltype(m11), decltype(m12), decltype(m13),
                   decltype(m14), decltype(m15), decltype(m16), decltype(m17), decltype(m18), decltype(m19),
                   decltype(m20), decltype(m21), decltype(m22), decltype(m23), decltype(m24)>>();
  }
}

template <class T>
constexpr auto members_of() {
  if constexpr (
      std::is_class_v<T> && std::is_aggregate_v<T> && !requires { T::memlith_layout; } &&
      !requires { std::tuple_size<T>::value; }) {
    return decltype(find_members(std::declval<T&>()))();
  } else {
    return UnknownMembers();
  }
}
template <class T>
using members_of_t = decltype(members_of<T>());
template <class T>
inline constexpr bool has_known_members_v = !std::is_same_v<members_of_t<T>, UnknownMembers>;

// ---- a number for a layout

constexpr std::uint32_t mix(std::uint32_t one, std::uint32_t other) {
  const std::uint64_t both = (std::uint64_t{one} << 32 | other) * 0x9e3779b97f4a7c15;
  return static_cast<std::uint32_t>(both >> 32 ^ both);
}

template <class... Part>
struct Arguments {};
template <class T>
struct arguments_of : std::type_identity<Arguments<>> {};
template <template <class...> class Template, class... Part>
struct arguments_of<Template<Part...>> : std::type_identity<Arguments<Part...>> {};

template <class T, class... Outer>
constexpr std::uint32_t number_of_layout();

template <class... Outer, class... Part>
constexpr std::uint32_t mix_all(std::uint32_t number, std::type_identity<std::tuple<Part...>>) {
  ((number = mix(number, number_of_layout<std::remove_cv_t<Part>, Outer...>())), ...);
  return number;
}
template <class... Outer, class... Part>
constexpr std::uint32_t mix_all(std::uint32_t number, Arguments<Part...>) {
  ((number = mix(number, number_of_layout<std::remove_cv_t<Part>, Outer...>())), ...);
  return number;
}

template <class T>
constexpr std::uint32_t kind_of(std::uint32_t kind) {
  return mix(mix(kind, sizeof(T)), alignof(T));
}

// The names of classes do not count, so that a copy of a struct under another name has the number, too. `Outer`: the
// types that are being looked into, which T may contain again.
template <class T, class... Outer>
constexpr std::uint32_t number_of_layout() {
  if constexpr ((std::is_same_v<T, Outer> || ...) || !std::is_object_v<T> || !requires { sizeof(T); }) {
    return 1;
  } else if constexpr (!requires { layout_of<T>::is_automatic; }) {
    return mix(2, layout_of<T>::value);
  } else if constexpr (std::is_array_v<T>) {
    return mix(kind_of<T>(3), number_of_layout<std::remove_cv_t<std::remove_extent_t<T>>, Outer...>());
  } else if constexpr (std::is_pointer_v<T>) {
    return 4;
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    return kind_of<T>(std::is_floating_point_v<T> ? 5 : std::is_same_v<T, bool> ? 6 : std::is_signed_v<T> ? 7 : 8);
  } else if constexpr (requires { sizeof(typename T::value_type[std::tuple_size<T>::value]); }) {  // std::array
    return mix(kind_of<T>(11), number_of_layout<typename T::value_type, Outer...>());
  } else if constexpr (has_known_members_v<T>) {
    return mix_all<T, Outer...>(kind_of<T>(9), members_of_t<T>());
  } else {
    return mix_all<T, Outer...>(kind_of<T>(10), typename arguments_of<T>::type());
  }
}

// The same in every run and with every standard library.
constexpr std::uint64_t text_number(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char each : text) value = (value ^ static_cast<unsigned char>(each)) * 0x100000001b3;
  return value ^ value >> 32;
}

// The name of T's type information, which compilers for Linux agree on.
template <class T>
std::string plain_type_name() {
  return std::string("_ZTS") + typeid(T).name();
}
template <class... Member>
std::string names_of_members(std::type_identity<std::tuple<Member...>>) {
  std::string names;
  ((names += (names.empty() ? "" : ", ") + plain_type_name<Member>()), ...);
  return " {" + names + "}";
}
// T's name and, of an aggregate, its members' types; of a very long name the beginning, and a number for the rest.
template <class T>
std::string type_name(std::size_t longest) {
  std::string name = plain_type_name<T>();
  if constexpr (has_known_members_v<T>) {
    const std::string members = names_of_members(members_of_t<T>());
    if (name.size() + members.size() <= longest) name += members;
  }
  if (name.size() > longest) {
    const std::uint64_t rest = text_number(std::string_view(name).substr(longest));
    name = name.substr(0, longest) + "..." + std::to_string(rest);
  }
  return name;
}

}  // namespace detail

// The number that a heap keeps with objects of T, and compares when they are asked for. To be specialised for classes
// that the compiler tells nothing of.
template <class T, class>
struct layout_of {
  static constexpr bool is_automatic = true;
  static constexpr std::uint32_t value = detail::number_of_layout<T>();
};
template <class T>
struct layout_of<T, std::void_t<decltype(T::memlith_layout)>>
    : std::integral_constant<std::uint32_t, T::memlith_layout> {};

}  // namespace memlith
