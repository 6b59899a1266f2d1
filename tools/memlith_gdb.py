"""Pretty-printers of gdb for memlith's types: `source memlith_gdb.py` in gdb, or gdb -x memlith_gdb.py PROGRAM.

The containers (memlith::map, memlith::vector and so on) are those of the standard library with memlith's allocator, or
are derived from these. gdb prints them by the printers that libstdc++ brings; this file adds what these do not know:
memlith::string, the containers made for pages (btree_map, flat_hash_map and their sets), the allocator, Result and
Error. With Debian's package libmemlith-dev gdb loads it by itself.
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


class PagesPrinter:
    """memlith::btree_map, flat_hash_map and their sets: the elements, read from their pages."""

    PAGES_MAX = 1 << 20  # of memory that may be damaged

    def __init__(self, value):
        self.name = value.type.strip_typedefs().name.split("<")[0].replace("memlith::", "")
        self.base = value
        while not any(field.name == "root_" for field in self.base.type.strip_typedefs().fields()):
            self.base = self.base[self.base.type.strip_typedefs().fields()[0]]
        self.root = self.base["root_"]
        self.is_map = self.name.endswith("_map")
        container = self.base.type.strip_typedefs()
        key = container.template_argument(0)
        allocator = container.template_argument(3 if self.name.startswith("btree") else 4)
        self.element = allocator.template_argument(0) if self.is_map else key

    def page_heads(self):
        if int(self.root) == 0:
            return
        if self.name.startswith("btree"):
            page, following = self.root["first"], lambda page: page["next"]
        else:
            page, following = self.root["directory"][0], self.page_behind
        for _ in range(self.PAGES_MAX):
            if int(page) == 0:
                return
            yield page
            page = following(page)

    def page_behind(self, page):
        if int(page["more"]) != 0:
            return page["more"]
        depth, own = int(self.root["depth"]), int(page["depth"])
        word = (int(page["beginning"]) >> (64 - depth)) + (1 << (depth - own)) if depth > 0 else 1
        return self.root["directory"][word] if word >> depth == 0 else gdb.Value(0)

    def elements(self):
        size, alignment = self.element.sizeof, self.element.alignof
        byte = gdb.lookup_type("unsigned char")
        for page in self.page_heads():
            head, capacity, count = int(page), int(page["capacity"]), int(page["count"])
            numbers = head + page.type.target().sizeof
            is_tree = self.name.startswith("btree")
            number = gdb.lookup_type("unsigned short") if is_tree and capacity > 255 else byte
            slots = -(-(numbers + capacity * number.sizeof) // alignment) * alignment
            table = gdb.Value(numbers).cast(number.pointer())
            used = ([int(table[i]) for i in range(count)] if is_tree
                    else [i for i in range(capacity) if int(table[i]) != 0])
            for slot in used:
                yield gdb.Value(slots + slot * size).cast(self.element.pointer()).dereference()

    def to_string(self):
        count = sum(int(page["count"]) for page in self.page_heads())
        return f"memlith::{self.name} with {count} element{'' if count == 1 else 's'}"

    def children(self):
        for number, element in enumerate(self.elements()):
            if self.is_map:
                yield f"[{2 * number}]", element["first"]
                yield f"[{2 * number + 1}]", element["second"]
            else:
                yield f"[{number}]", element

    def display_hint(self):
        return "map" if self.is_map else "array"


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
    (re.compile(r"^memlith::(btree|flat_hash)_(map|set)<.*>$"), PagesPrinter),
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
