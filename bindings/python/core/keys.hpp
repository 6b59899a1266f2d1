// Keys of dictionaries as bytes whose order is the natural order of the keys, and back.
//
// Part: python. The first byte is the kind: None, then numbers, then bytes, then str, then tuples. Numbers of Python
// that are equal (1, 1.0, True) are one key, as in a dict; int and float are in one order. A number is its sign, the
// exponent of its highest bit, and its bits from there on; so every int and every finite float has exactly one form.
#ifndef MEMLITH_PYTHON_KEYS_HPP
#define MEMLITH_PYTHON_KEYS_HPP

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>
#include <utility>

namespace memlith::python {

// Raises TypeError for a key of another type, and Invalid for a NaN or a key that is too long.
std::string encode_key(nanobind::handle key);
// The bytes from which, and before which, the keys lie that begin with these: str and bytes as their own prefixes, a
// tuple with these first items. Raises TypeError for another key.
std::pair<std::string, std::string> encode_prefix(nanobind::handle prefix);
nanobind::object decode_key(std::string_view bytes);

}  // namespace memlith::python

#endif
