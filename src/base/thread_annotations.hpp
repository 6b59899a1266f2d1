// Which lock guards what, in words that clang checks at compile time (-Wthread-safety). Floor: base.
//
// A member says which mutex guards it, and a function says which mutexes its caller holds. The clang build then refuses
// code that touches the member or calls the function without the lock. Other compilers see nothing. The types that
// carry the annotations are in base/sync.hpp.
#pragma once

#ifdef __clang__
#define MEMLITH_ANNOTATION(words) __attribute__((words))
#else
#define MEMLITH_ANNOTATION(words)
#endif

// On a type: it is a lock, or it holds a lock for as long as it lives.
#define MEMLITH_CAPABILITY(name) MEMLITH_ANNOTATION(capability(name))
#define MEMLITH_SCOPED_CAPABILITY MEMLITH_ANNOTATION(scoped_lockable)

// On a member: it, or what it points to, is used only by holders of the mutex.
#define MEMLITH_GUARDED_BY(mutex) MEMLITH_ANNOTATION(guarded_by(mutex))
#define MEMLITH_PT_GUARDED_BY(mutex) MEMLITH_ANNOTATION(pt_guarded_by(mutex))

// On a function or a lambda: its caller holds the mutexes, or must not hold them.
#define MEMLITH_REQUIRES(...) MEMLITH_ANNOTATION(requires_capability(__VA_ARGS__))
#define MEMLITH_EXCLUDES(...) MEMLITH_ANNOTATION(locks_excluded(__VA_ARGS__))

// On a function: it locks or unlocks the mutexes; without any it means the object itself. The first argument of
// TRY_ACQUIRE is what the function returns when it has locked. What ACQUIRE_SHARED locks, several threads hold at a
// time: they may read what the mutex guards, and must not change it.
#define MEMLITH_ACQUIRE(...) MEMLITH_ANNOTATION(acquire_capability(__VA_ARGS__))
#define MEMLITH_ACQUIRE_SHARED(...) MEMLITH_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define MEMLITH_RELEASE_SHARED(...) MEMLITH_ANNOTATION(release_shared_capability(__VA_ARGS__))
#define MEMLITH_TRY_ACQUIRE(...) MEMLITH_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define MEMLITH_RELEASE(...) MEMLITH_ANNOTATION(release_capability(__VA_ARGS__))

// On a function that finds the mutex locked already: the analysis takes it as held from the call on.
#define MEMLITH_ASSERT_CAPABILITY(...) MEMLITH_ANNOTATION(assert_capability(__VA_ARGS__))

// On a function that returns the mutex, for callers that lock it.
#define MEMLITH_RETURN_CAPABILITY(mutex) MEMLITH_ANNOTATION(lock_returned(mutex))

// On a function whose locking the analysis cannot follow, such as one that locks as many mutexes as a list has. A
// comment says why.
#define MEMLITH_NO_THREAD_SAFETY_ANALYSIS MEMLITH_ANNOTATION(no_thread_safety_analysis)

namespace memlith::core {

// Calls `act`, which is annotated with a mutex that the analysis cannot name at the place of the call, such as one that
// a template knows by another name. The body of `act` is analysed.
template <class Act, class... Arguments>
decltype(auto) call_annotated(Act&& act, Arguments&&... arguments) MEMLITH_NO_THREAD_SAFETY_ANALYSIS {
  return static_cast<Act&&>(act)(static_cast<Arguments&&>(arguments)...);
}

}  // namespace memlith::core
