#include "keys.hpp"

#include <memlith/kv.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "errors.hpp"

namespace nb = nanobind;

namespace memlith::python {

namespace {

enum Kind : unsigned char {
  kEnd = 0x00,  // of a tuple: before everything that could follow
  kNone = 0x05,
  kMinusInfinity = 0x10,
  kNegative = 0x11,
  kZero = 0x12,
  kPositive = 0x13,
  kInfinity = 0x14,
  kBytes = 0x20,
  kText = 0x30,
  kTuple = 0x40,
};

constexpr int kExponentBias = 2048;  // the lowest exponent of a float is -1074
constexpr int kTupleDepthMax = 64;
constexpr char kEscaped = static_cast<char>(0xff);

[[noreturn]] void unreadable() { fail(MEMLITH_CORRUPT, "a key of the dictionary is none that memlith made"); }

nb::object checked(PyObject* made) {
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

// Bytes of any length in front of others: a zero is followed by 0xff, and two zeros are the end.
void put_escaped(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) {
    out.push_back(byte);
    if (byte == 0) out.push_back(kEscaped);
  }
  out.append(2, '\0');
}

std::string take_escaped(std::string_view& from) {
  std::string bytes;
  for (std::size_t at = 0; at + 1 < from.size(); ++at) {
    if (from[at] == 0 && from[at + 1] == 0) {
      from.remove_prefix(at + 2);
      return bytes;
    }
    bytes.push_back(from[at]);
    if (from[at] == 0) ++at;
  }
  unreadable();
}

// `bits` begin with the highest bit of the number, which is worth 2^exponent.
void put_number(std::string& out, bool negative, int exponent, std::string_view bits) {
  while (!bits.empty() && bits.back() == 0) bits.remove_suffix(1);
  out.push_back(negative ? kNegative : kPositive);
  const std::size_t begin = out.size();
  const int biased = exponent + kExponentBias;
  out.push_back(static_cast<char>(biased >> 8));
  out.push_back(static_cast<char>(biased));
  put_escaped(out, bits);
  if (!negative) return;
  for (std::size_t at = begin; at < out.size(); ++at) out[at] = static_cast<char>(~out[at]);
}

void put_bits(std::string& out, bool negative, int exponent, std::uint64_t bits) {
  char bytes[8];
  for (int at = 0; at < 8; ++at) bytes[at] = static_cast<char>(bits >> (56 - 8 * at));
  put_number(out, negative, exponent, {bytes, sizeof bytes});
}

void put_long_integer(std::string& out, nb::handle number) {
  const bool negative = number < nb::int_(0);
  const nb::object magnitude = negative ? -nb::borrow(number) : nb::borrow(number);
  const auto length = nb::cast<std::size_t>(magnitude.attr("bit_length")());
  if (length > std::size_t{8} * MEMLITH_KV_KEY_BYTES_MAX) {
    fail(MEMLITH_INVALID, "an integer of " + std::to_string(length) + " bits is too long for a key");
  }
  const std::size_t count = (length + 7) / 8;
  const nb::object shifted = magnitude << nb::int_(8 * count - length);
  const nb::object bytes = shifted.attr("to_bytes")(count, "big");
  put_number(out, negative, static_cast<int>(length) - 1, {nb::borrow<nb::bytes>(bytes).c_str(), count});
}

void put_integer(std::string& out, nb::handle number) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (overflow != 0) return put_long_integer(out, number);
  if (value == 0) return out.push_back(kZero);
  const std::uint64_t magnitude =
      value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
  const int zeros = std::countl_zero(magnitude);
  put_bits(out, value < 0, 63 - zeros, magnitude << zeros);
}

void put_float(std::string& out, double value) {
  if (std::isnan(value)) fail(MEMLITH_INVALID, "a NaN has no place in the order of keys");
  if (value == 0) return out.push_back(kZero);
  if (std::isinf(value)) return out.push_back(value < 0 ? kMinusInfinity : kInfinity);
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);
  put_bits(out, value < 0, exponent - 1, static_cast<std::uint64_t>(std::ldexp(fraction, 64)));
}

std::string_view text_of(nb::handle text, nb::object& holder) {
  Py_ssize_t bytes = 0;
  if (const char* const quick = PyUnicode_AsUTF8AndSize(text.ptr(), &bytes)) return {quick, std::size_t(bytes)};
  PyErr_Clear();  // half of a surrogate pair
  holder = checked(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogatepass"));
  return {PyBytes_AsString(holder.ptr()), std::size_t(PyBytes_Size(holder.ptr()))};
}

void put(std::string& out, nb::handle key, int depth) {
  const auto put_text = [&](Kind kind, std::string_view text) {
    out.push_back(static_cast<char>(kind));
    if (depth > 0) return put_escaped(out, text);
    out.append(text);
  };
  nb::object holder;
  if (PyUnicode_Check(key.ptr())) return put_text(kText, text_of(key, holder));
  if (PyBytes_Check(key.ptr())) {
    return put_text(kBytes, {PyBytes_AsString(key.ptr()), std::size_t(PyBytes_Size(key.ptr()))});
  }
  if (PyLong_Check(key.ptr())) return put_integer(out, key);
  if (PyFloat_Check(key.ptr())) return put_float(out, PyFloat_AsDouble(key.ptr()));
  if (key.is_none()) return out.push_back(kNone);
  if (!PyTuple_Check(key.ptr())) {
    const nb::object type = key.type().attr("__name__");
    throw nb::type_error(("a key is bytes, str, int, float, None or a tuple of them, not " +
                          std::string(nb::borrow<nb::str>(type).c_str()))
                             .c_str());
  }
  if (depth == kTupleDepthMax) fail(MEMLITH_INVALID, "the tuples of a key are nested too deeply");
  out.push_back(kTuple);
  const Py_ssize_t count = PyTuple_Size(key.ptr());
  for (Py_ssize_t at = 0; at < count; ++at) put(out, PyTuple_GetItem(key.ptr(), at), depth + 1);
  out.push_back(kEnd);
}

nb::object number_of(bool negative, int exponent, const std::string& bits) {
  if (bits.empty() || bits.back() == 0) unreadable();
  const int count = 8 * static_cast<int>(bits.size());
  const int below = count - 1 - std::countr_zero(static_cast<unsigned char>(bits.back())) - exponent;  // the point
  if (below <= 0 && exponent <= 62) {
    std::uint64_t value = 0;
    for (const char byte : bits) value = value << 8 | static_cast<unsigned char>(byte);
    value = exponent >= count - 1 ? value << (exponent - (count - 1)) : value >> (count - 1 - exponent);
    return nb::int_(negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value));
  }
  if (below <= 0) {
    const nb::object type = nb::borrow(reinterpret_cast<PyObject*>(&PyLong_Type));
    const nb::object whole = type.attr("from_bytes")(nb::bytes(bits.data(), bits.size()), "big");
    const int shift = exponent - (count - 1);
    const nb::object value = shift >= 0 ? whole << nb::int_(shift) : whole >> nb::int_(-shift);
    return negative ? -value : value;
  }
  double value = 0;
  int place = exponent - 7;
  for (const char byte : bits) {
    value += std::ldexp(static_cast<unsigned char>(byte), place);
    place -= 8;
  }
  return nb::float_(negative ? -value : value);
}

nb::object take_number(std::string_view& from, bool negative) {
  std::string plain(from);
  if (negative) {
    for (char& byte : plain) byte = static_cast<char>(~byte);
  }
  if (plain.size() < 2) unreadable();
  std::string_view rest = plain;
  const int exponent = (static_cast<unsigned char>(rest[0]) << 8 | static_cast<unsigned char>(rest[1])) - kExponentBias;
  rest.remove_prefix(2);
  const std::string bits = take_escaped(rest);
  from.remove_prefix(from.size() - rest.size());
  return number_of(negative, exponent, bits);
}

nb::object take(std::string_view& from, int depth);

nb::object take_tuple(std::string_view& from, int depth) {
  nb::list items;
  while (!from.empty() && from.front() != kEnd) items.append(take(from, depth + 1));
  if (from.empty() || depth > kTupleDepthMax) unreadable();
  from.remove_prefix(1);
  return nb::tuple(items);
}

nb::object take(std::string_view& from, int depth) {
  if (from.empty()) unreadable();
  const auto kind = static_cast<unsigned char>(from.front());
  from.remove_prefix(1);
  const auto take_text = [&](auto make) {
    if (depth > 0) {
      const std::string text = take_escaped(from);
      return make(std::string_view(text));
    }
    return make(std::exchange(from, {}));
  };
  const double infinity = std::numeric_limits<double>::infinity();
  switch (kind) {
    case kNone: return nb::none();
    case kMinusInfinity: return nb::float_(-infinity);
    case kNegative: return take_number(from, true);
    case kZero: return nb::int_(0);
    case kPositive: return take_number(from, false);
    case kInfinity: return nb::float_(infinity);
    case kBytes:
      return take_text([](std::string_view text) -> nb::object { return nb::bytes(text.data(), text.size()); });
    case kText:
      return take_text([](std::string_view text) {
        return checked(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogatepass"));
      });
    case kTuple: return take_tuple(from, depth);
    default: unreadable();
  }
}

}  // namespace

std::string encode_key(nb::handle key) {
  std::string out;
  put(out, key, 0);
  if (out.size() > MEMLITH_KV_KEY_BYTES_MAX) {
    fail(MEMLITH_INVALID, "the key takes " + std::to_string(out.size()) + " bytes; a key has at most " +
                              std::to_string(MEMLITH_KV_KEY_BYTES_MAX));
  }
  return out;
}

std::pair<std::string, std::string> encode_prefix(nb::handle prefix) {
  if (!PyUnicode_Check(prefix.ptr()) && !PyBytes_Check(prefix.ptr()) && !PyTuple_Check(prefix.ptr())) {
    throw nb::type_error("a prefix is bytes, str or a tuple");
  }
  std::string from = encode_key(prefix);
  if (PyTuple_Check(prefix.ptr())) from.pop_back();  // kEnd
  std::string to = from;
  while (to.back() == kEscaped) to.pop_back();  // ends at the kind, which is less
  to.back() = static_cast<char>(static_cast<unsigned char>(to.back()) + 1);
  return {std::move(from), std::move(to)};
}

nb::object decode_key(std::string_view bytes) {
  nb::object key = take(bytes, 0);
  if (!bytes.empty()) unreadable();
  return key;
}

}  // namespace memlith::python
