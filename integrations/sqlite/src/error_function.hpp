// SELECT memlith_error() on any connection of a SQLite: a database that could not be opened has none to ask. Part of
// the SQLite plugin (entry.cpp).
#pragma once

#include "api.hpp"

namespace memlith::sqlite {

// Connections that are opened from now on have the function. Without the memory for it they do without.
void add_error_function(const Api& api);

}  // namespace memlith::sqlite
