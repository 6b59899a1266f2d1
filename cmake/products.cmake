# The target `products`: what is installed and what README.md shows, the libraries, the command, the plugins, memlith-cc
# and the examples, without benchmarks and tests. `./dev build` builds it; `all` is what the tests need, too.
add_custom_target(products)
foreach(product memlith memlith_static memlith_run memlith_cli memlith_sqlite memlith_postgres memlith_new
    memlith_malloc memlith_track_runtime hello_c hello_cpp threads_example bank_example cache_example counter_example
    memlith-demo tycoon_example)
  if(TARGET ${product})
    add_dependencies(products ${product})
  endif()
endforeach()
