// What an application log needs of the handles of a kv store. Floor: capi.
#pragma once

#include "kv/kv.hpp"
#include "memlith/kv.h"

namespace memlith::core {

// The transaction of a handle that is not null and not of a forked child.
Result<kv::Transaction*> kv_transaction_of(memlith_kv_txn* txn);

}  // namespace memlith::core
