"""Pretty-printers of gdb for memlith's types: `source memlith_gdb.py` in gdb, or gdb -x memlith_gdb.py PROGRAM.

The containers (memlith::map, memlith::vector and so on) are those of the standard library with memlith's allocator, or
are derived from these. gdb prints them by the printers that libstdc++ brings; this file adds what these do not know:
memlith::string, the allocator, Result and Error. With Debian's package libmemlith-dev gdb loads it by itself.
"""
import re

import gdb
import gdb.printing


class StringPrinter:
    """memlith::string, which is derived from std::basic_string."""

    def __init__(self, value):
        self.base = value[value.type.strip_typedefs().fields()[0]]

    def to_string(self):
        try:
            data, size = self.base["_M_dataplus"]["_M_p"], int(self.base["_M_string_length"])
        except gdb.error:  # another standard library, whose own printer may know
            return self.base
        return data.string(length=size, errors="backslashreplace") if size > 0 else ""

    @staticmethod
    def display_hint():
        return "string"


def container_printer(value):
    """memlith::map and the others that find keys: the printer of the standard container that they are derived from."""
    while value.type.strip_typedefs().name.startswith("memlith::"):
        value = value[value.type.strip_typedefs().fields()[0]]
    return gdb.default_visualizer(value)


class AllocatorPrinter:
    """memlith::allocator<T>: of which heap."""

    def __init__(self, value):
        self.base = value["heap_base_"]

    def to_string(self):
        if int(self.base) == 0:
            return "of the current heap"
        return f"of the heap at {int(self.base):#x}"


class ErrorPrinter:
    """memlith::Error: its code, and the sentence."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        code = int(self.value["code_"])
        return "no error" if code == 0 else f"error {code}: {std_string(self.value['message_'])}"


class ResultPrinter:
    """memlith::Result<T>: the value, or the error."""

    def __init__(self, value):
        self.value = value

    def alternatives(self):
        """(has a value, what is in it), or None for a library that lays these out in another way."""
        try:
            fields = {field.name for field in self.value.type.strip_typedefs().fields()}
            if "error_" in fields:  # Result<void>
                payload = self.value["error_"]["_M_payload"]
                if not bool(payload["_M_engaged"]):
                    return True, None
                return False, payload["_M_payload"]["_M_value"]
            content = self.value["content_"]
            arguments = content.type.strip_typedefs()
            which = int(content["_M_index"])
            wanted = arguments.template_argument(which)
            first = content["_M_u"]["_M_first"]
            storage = first if which == 0 else content["_M_u"]["_M_rest"]["_M_first"]
            place = storage["_M_storage"]
            if place.type.strip_typedefs() != wanted.strip_typedefs():
                place = place.address.cast(wanted.pointer()).dereference()
            return which == 0, place
        except gdb.error:
            return None

    def to_string(self):
        found = self.alternatives()
        if found is None:
            return "memlith::Result"
        ok, what = found
        if not ok:
            return f"memlith::Result with {ErrorPrinter(what).to_string()}"
        return "memlith::Result, ok"

    def children(self):
        found = self.alternatives()
        if found is not None and found[0] and found[1] is not None:
            yield "value", found[1]


def std_string(value):
    """The text of a std::string, whatever its printer."""
    try:
        return value["_M_dataplus"]["_M_p"].string(length=int(value["_M_string_length"]), errors="backslashreplace")
    except gdb.error:
        return value.format_string()


PRINTERS = [
    (re.compile(r"^memlith::string$"), StringPrinter),
    (re.compile(r"^memlith::(unordered_)?(multi)?(map|set)<.*>$"), container_printer),
    (re.compile(r"^memlith::allocator<.*>$"), AllocatorPrinter),
    (re.compile(r"^memlith::Error$"), ErrorPrinter),
    (re.compile(r"^memlith::Result<.*>$"), ResultPrinter),
]


class Printers(gdb.printing.PrettyPrinter):
    """One collection, which `disable pretty-printer` knows as memlith."""

    def __init__(self):
        super().__init__("memlith")

    def __call__(self, value):
        kind = value.type
        if kind.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
            kind = kind.target()
            value = value.referenced_value()
        name = kind.strip_typedefs().unqualified().name
        for pattern, printer in PRINTERS:
            if name is not None and pattern.match(name):
                return printer(value)
        return None


gdb.printing.register_pretty_printer(gdb.current_objfile(), Printers(), replace=True)
