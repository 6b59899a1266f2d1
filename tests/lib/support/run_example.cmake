# Runs PROGRAM twice on STORE: each run says which run it is, and the second must know of the first.
file(REMOVE_RECURSE ${STORE})
foreach(run 1 2)
  execute_process(COMMAND ${PROGRAM} ${STORE} OUTPUT_VARIABLE output RESULT_VARIABLE result)
  if(NOT result EQUAL 0 OR NOT output MATCHES "run ${run}")
    message(FATAL_ERROR "run ${run} ended with ${result} and printed: ${output}")
  endif()
endforeach()
