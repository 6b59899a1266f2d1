/* The scanf family: the format says which memory the conversions wrote to. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>

#include "stored.h"

enum kind { number, text, wide_text, letters };

/* A conversion of a format. */
struct conversion {
  enum kind kind;
  size_t bytes;   /* of a number; of `letters` if the width says so */
  int position;   /* of its argument, from 1 on; 0: the next one */
  bool allocated; /* the argument is the address of a pointer to what was read */
  bool counts;    /* in the result of scanf */
};

static size_t bytes_of(const char* length, char letter) {
  if (letter == 'p') return sizeof(void*);
  const bool real = strchr("aAeEfFgG", letter) != NULL;
  if (*length == 'h') return length[1] == 'h' ? sizeof(char) : sizeof(short);
  if (*length == 'L' || *length == 'q' || (length[0] == 'l' && length[1] == 'l')) {
    return real ? sizeof(long double) : sizeof(long long);
  }
  if (*length == 'l') return real ? sizeof(double) : sizeof(long);
  if (*length == 'j' || *length == 'z' || *length == 't') return sizeof(intmax_t);
  return real ? sizeof(float) : sizeof(int);
}

/* Behind a set of characters, [...]. */
static const char* behind_set(const char* at) {
  if (*at == '^') ++at;
  if (*at == ']') ++at;
  while (*at != 0 && *at != ']') ++at;
  return *at == ']' ? at + 1 : at;
}

/* The next conversion that stores, or false. Moves the format behind it. */
static bool next_conversion(const char** format, struct conversion* found) {
  for (const char* at = *format; *at != 0;) {
    if (*at++ != '%') continue;
    if (*at == '%') {
      ++at;
      continue;
    }
    char* end = NULL;
    bool dropped = false;
    *found = (struct conversion){.counts = true};
    const unsigned long first = strtoul(at, &end, 10);
    if (end > at && isdigit((unsigned char)*at) && *end == '$') {
      found->position = (int)first;
      at = end + 1;
    }
    for (; *at == '*' || *at == '\'' || *at == 'I'; ++at) dropped = dropped || *at == '*';
    size_t width = 0;
    for (; isdigit((unsigned char)*at); ++at) width = 10 * width + (size_t)(*at - '0');
    if (*at == 'm') found->allocated = true, ++at;
    const char* const length = at;
    while (*at != 0 && strchr("hlLqjzt", *at) != NULL) ++at;
    const bool wide = *length == 'l';
    const char letter = *at == 0 ? 0 : *at++;
    if (letter == '[') at = behind_set(at);
    *format = at;
    if (letter == 0) return false;
    if (dropped) continue;
    if (letter == 'c' || letter == 'C') {
      found->kind = letters;
      found->bytes = (width > 0 ? width : 1) * (wide || letter == 'C' ? sizeof(wchar_t) : 1);
    } else if (letter == 's' || letter == 'S' || letter == '[') {
      found->kind = wide || letter == 'S' ? wide_text : text;
    } else {
      found->kind = number;
      found->bytes = bytes_of(length, letter);
      found->counts = letter != 'n';
    }
    return true;
  }
  return false;
}

static void stored_by(const struct conversion* each, void* to) {
  if (each->allocated) {
    stored(to, sizeof(void*));
    to = *(void**)to;
    if (to == NULL) return;
  }
  switch (each->kind) {
    case number:
    case letters: stored(to, each->bytes); break;
    case text: stored_text(to); break;
    case wide_text:
      if (is_tracked(to)) stored(to, (wcslen(to) + 1) * sizeof(wchar_t));
      break;
  }
}

static void* argument_at(va_list arguments, int position) {
  va_list copy;
  va_copy(copy, arguments);
  void* found = NULL;
  for (int i = 0; i < position; ++i) found = va_arg(copy, void*);
  va_end(copy);
  return found;
}

/* Records the bytes that a call wrote which assigned `assigned` arguments. A conversion that failed may have written,
 * too, unless it reads text. */
static void scanned(const char* format, va_list arguments, int assigned) {
  struct conversion each;
  for (int next = 1; next_conversion(&format, &each);) {
    const bool failed = each.counts && assigned <= 0;
    void* const to = argument_at(arguments, each.position > 0 ? each.position : next++);
    if (!failed || (!each.allocated && (each.kind == number || each.kind == letters))) stored_by(&each, to);
    if (failed) return;
    if (each.counts) --assigned;
  }
}

#define SCAN_LIST(name, parameters, call)                                      \
  WRAP(int, name)(parameters const char* restrict format, va_list arguments) { \
    va_list copy;                                                              \
    va_copy(copy, arguments);                                                  \
    const int assigned = call;                                                 \
    scanned(format, copy, assigned);                                           \
    va_end(copy);                                                              \
    return assigned;                                                           \
  }
#define SCAN(name, parameters, call)                             \
  WRAP(int, name)(parameters const char* restrict format, ...) { \
    va_list arguments;                                           \
    va_list copy;                                                \
    va_start(arguments, format);                                 \
    va_copy(copy, arguments);                                    \
    const int assigned = call;                                   \
    scanned(format, copy, assigned);                             \
    va_end(copy);                                                \
    va_end(arguments);                                           \
    return assigned;                                             \
  }
#define COMMA ,
#define FILES FILE* restrict file COMMA
#define TEXTS const char* restrict from COMMA

/* Before C99, %a allocates. Programs compiled as C99 or later call functions of other names. */
int vscanf_original(const char* format, va_list arguments) __asm__("vscanf");
int vfscanf_original(FILE* file, const char* format, va_list arguments) __asm__("vfscanf");
int vsscanf_original(const char* from, const char* format, va_list arguments) __asm__("vsscanf");
int vscanf_99(const char* format, va_list arguments) __asm__("__isoc99_vscanf");
int vfscanf_99(FILE* file, const char* format, va_list arguments) __asm__("__isoc99_vfscanf");
int vsscanf_99(const char* from, const char* format, va_list arguments) __asm__("__isoc99_vsscanf");

SCAN(scanf, , vscanf_original(format, arguments))
SCAN(fscanf, FILES, vfscanf_original(file, format, arguments))
SCAN(sscanf, TEXTS, vsscanf_original(from, format, arguments))
SCAN_LIST(vscanf, , vscanf_original(format, arguments))
SCAN_LIST(vfscanf, FILES, vfscanf_original(file, format, arguments))
SCAN_LIST(vsscanf, TEXTS, vsscanf_original(from, format, arguments))
SCAN(__isoc99_scanf, , vscanf_99(format, arguments))
SCAN(__isoc99_fscanf, FILES, vfscanf_99(file, format, arguments))
SCAN(__isoc99_sscanf, TEXTS, vsscanf_99(from, format, arguments))
SCAN_LIST(__isoc99_vscanf, , vscanf_99(format, arguments))
SCAN_LIST(__isoc99_vfscanf, FILES, vfscanf_99(file, format, arguments))
SCAN_LIST(__isoc99_vsscanf, TEXTS, vsscanf_99(from, format, arguments))
