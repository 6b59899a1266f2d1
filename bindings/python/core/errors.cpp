#include "errors.hpp"

#include <memlith/memlith.h>

#include <string_view>
#include <utility>

namespace nb = nanobind;

namespace memlith::python {

namespace {

// From a category to its exception class. Lives as long as the process: an exception can be made while it ends.
PyObject* classes = nullptr;

// Functions and flags of C that sentences name, and their names in Python.
constexpr std::pair<std::string_view, std::string_view> kWords[] = {
    {" (memlith_store_set_log_max)", " (log_max_bytes= of memlith.open)"},
    {" (memlith_persist_range)", ""},
    {" (MEMLITH_IO_AUTO)", " (io=0)"},
    {"; see MEMLITH_IO_AUTO", ""},
    {" (MEMLITH_OPEN_FOLLOW)", " (follow=True)"},
    {"MEMLITH_REGION_ANYWHERE", "an opening at any address"},
    {" (MEMLITH_FORMAT_FORCE)", ""},
    {"memlith_touch()", "store.touch()"},
};

std::string in_python(std::string sentence) {
  for (const auto& [word, instead] : kWords) {
    const std::size_t at = sentence.find(word);
    if (at != std::string::npos) sentence.replace(at, word.size(), instead);
  }
  return sentence;
}

void raise_in_python(const Failure& failure) {
  const nb::object category = nb::cast(memlith_category(failure.code));
  PyObject* const type = classes == nullptr ? nullptr : PyDict_GetItemWithError(classes, category.ptr());
  if (type == nullptr) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_RuntimeError, failure.sentence.c_str());
    return;
  }
  // Paths in sentences are bytes, of any encoding.
  const nb::object sentence =
      nb::steal(PyUnicode_DecodeUTF8(failure.sentence.data(), static_cast<Py_ssize_t>(failure.sentence.size()),
                                     "backslashreplace"));
  if (sentence.is_valid()) PyErr_SetObject(type, sentence.ptr());
}

}  // namespace

void check(std::int32_t code) {
  if (code == MEMLITH_OK) return;
  std::string sentence(256, '\0');
  const std::size_t bytes = memlith_last_error(sentence.data(), sentence.size());
  if (bytes >= sentence.size()) {
    sentence.resize(bytes + 1);
    memlith_last_error(sentence.data(), sentence.size());
  }
  sentence.resize(bytes);
  throw Failure{code, in_python(std::move(sentence))};
}

void check_room(std::int32_t code) {
  switch (memlith_category(code)) {
    case MEMLITH_NO_SPACE:
    case MEMLITH_FULL:
    case MEMLITH_NO_MEMORY:
    case MEMLITH_TOO_MANY_FILES: check(code); break;
    default: break;
  }
}

void fail(std::int32_t category, std::string sentence) { throw Failure{category, std::move(sentence)}; }

void define_errors(nb::module_& module) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Failure& failure) {
      raise_in_python(failure);
    }
  });
  module.def(
      "set_error_classes",
      [](nb::dict given) {
        Py_XDECREF(classes);
        classes = given.release().ptr();
      },
      nb::arg("classes"), "Sets the exception class of each category.");
}

}  // namespace memlith::python
