# memlith_unity(TARGET...): their files are compiled six at a time. What they all include is read once for six, and what
# they all instantiate compiled once: half of the time of such a target. In return the names of their unnamed namespaces
# must differ, or each file has a namespace of its own, as tests have (memlith::test::kv_test).
function(memlith_unity)
  set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
endfunction()
