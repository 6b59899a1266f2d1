/* The directives of memlith: in the configuration file, on the command line, and with CONFIG GET and SET. plugin redis.
 *
 * Redis's own parser does not know them, so they are taken out of the text before Redis reads it.
 */
#include "redis.h" /* first: it says which system this is */

#include <fcntl.h>

struct memlith_config memlith_config = {0, 0, 64ULL << 20, 1000, NULL};

#define DIRECTIVES 5
static const char* const names[DIRECTIVES] = {"memlith", "memlith-dir", "memlith-log-size", "memlith-durability",
                                              "memlith-window-ms"};

static sds value_of(int which) {
  switch (which) {
    case 0: return sdsnew(memlith_config.on ? "yes" : "no");
    case 1: return sdsnew(memlith_config.folder ? memlith_config.folder : "memlith");
    case 2: return sdscatfmt(sdsempty(), "%U", memlith_config.log_bytes);
    case 3: return sdsnew(memlith_config.weak ? "weak" : "strong");
    default: return sdscatfmt(sdsempty(), "%U", memlith_config.window_ms);
  }
}

static int which_directive(const char* name) {
  for (int i = 0; i < DIRECTIVES; i++) {
    if (!strcasecmp(name, names[i])) return i;
  }
  return -1;
}

/* The fault of the value, or NULL. */
static const char* set_directive(int which, const char* value) {
  int error = 0;
  if (which == 0) {
    int on = yesnotoi((char*)value);
    if (on == -1) return "memlith: argument must be 'yes' or 'no'";
    memlith_config.on = on;
  } else if (which == 1) {
    if (!*value) return "memlith-dir: a folder is needed";
    sdsfree(memlith_config.folder);
    memlith_config.folder = sdsnew(value);
  } else if (which == 2) {
    unsigned long long bytes = memtoull(value, &error);
    if (error || bytes < (1 << 20) || bytes > (1ULL << 40)) return "memlith-log-size: must be 1mb to 1024gb";
    memlith_config.log_bytes = bytes;
  } else if (which == 3) {
    if (strcasecmp(value, "strong") && strcasecmp(value, "weak")) {
      return "memlith-durability: argument must be 'strong' or 'weak'";
    }
    memlith_config.weak = !strcasecmp(value, "weak");
  } else {
    unsigned long long ms = memtoull(value, &error);
    if (error || ms < 1 || ms > 60000) return "memlith-window-ms: must be 1 to 60000";
    memlith_config.window_ms = ms;
  }
  return NULL;
}

/* ---- the configuration file and the command line ----------------------------------------------------------------- */

static void refuse(int line, const char* text, const char* why) {
  fprintf(stderr,
          "\n*** FATAL CONFIG FILE ERROR (memlith) ***\nReading the configuration file, at line %d\n>>> '%s'\n%s\n",
          line, text, why);
  exit(1);
}

static sds read_stream(sds to, FILE* from) {
  char bytes[4096];
  size_t count;
  while ((count = fread(bytes, 1, sizeof bytes, from)) > 0) to = sdscatlen(to, bytes, count);
  return to;
}

/* The user's values of the directives that memlith sets to others while it keeps the data. CONFIG REWRITE writes these,
 * and a new store takes its first data from what a plain server would have loaded. */
static struct {
  int has_save, has_appendonly; /* in the text, included files not */
  int appendonly, appendfsync, memcheck;
} users;

int memlith_users_appendonly(void) { return users.appendonly ? 1 : users.has_appendonly ? 0 : -1; }

/* The text without our directives, line for line, so that Redis's messages name the right ones. */
static sds take_out(sds text) {
  int count;
  sds* lines = sdssplitlen(text, (ssize_t)sdslen(text), "\n", 1, &count);
  sds rest = sdsempty();
  for (int i = 0; i < count; i++) {
    int argc = 0;
    sds line = sdstrim(sdsdup(lines[i]), " \t\r\n");
    sds* argv = *line && *line != '#' ? sdssplitargs(line, &argc) : NULL;
    int which = argv && argc > 0 ? which_directive(argv[0]) : -1;
    if (argv && argc > 0 && !strcasecmp(argv[0], "save")) users.has_save = 1;
    if (argv && argc > 0 && !strcasecmp(argv[0], "appendonly")) users.has_appendonly = 1;
    if (which >= 0) {
      const char* why = argc == 2 ? set_directive(which, argv[1]) : "one argument is needed";
      if (why) refuse(i + 1, line, why);
    } else {
      rest = sdscatsds(rest, lines[i]);
    }
    rest = sdscat(rest, "\n");
    if (argv) sdsfreesplitres(argv, argc);
    sdsfree(line);
  }
  sdsfreesplitres(lines, count);
  return rest;
}

static void begin_with_memlith(void) {
  if (!memlith_config.folder) memlith_config.folder = sdsnew("memlith");
  users.appendonly = server.aof_enabled;
  users.appendfsync = server.aof_fsync;
  users.memcheck = server.memcheck_enabled;
  server.aof_enabled = 1; /* writes are fed to the append-only file, which is ours */
  server.aof_fsync = memlith_config.weak ? AOF_FSYNC_EVERYSEC : AOF_FSYNC_ALWAYS;
  if (!users.has_save) resetServerSaveParams();
  server.memcheck_enabled = 0; /* after a crash Redis would test the terabytes of addresses that regions reserve */
}

void __real_loadServerConfig(char* file, char from_stdin, char* options);
void __wrap_loadServerConfig(char* file, char from_stdin, char* options) {
  if (server.sentinel_mode) {
    __real_loadServerConfig(file, from_stdin, options);
    return;
  }
  sds text = sdsempty();
  FILE* opened = file ? fopen(file, "r") : NULL;
  if (file && !opened) {
    __real_loadServerConfig(file, 0, NULL); /* says what is wrong with it, and ends */
    exit(1);
  }
  if (opened) {
    text = read_stream(text, opened);
    fclose(opened);
  }
  if (from_stdin) text = read_stream(text, stdin);
  text = sdscat(text, "\n");
  if (options) text = sdscat(text, options);
  sds rest = take_out(text);
  __real_loadServerConfig(NULL, 0, rest);
  sdsfree(rest);
  sdsfree(text);
  if (memlith_config.on) begin_with_memlith();
}

/* ---- CONFIG GET -------------------------------------------------------------------------------------------------- */

static int in_get, wanted[DIRECTIVES], wanted_count;

void __real_addReplyMapLen(client* c, long length);
void __wrap_addReplyMapLen(client* c, long length) { __real_addReplyMapLen(c, length + (in_get ? wanted_count : 0)); }

void __real_configGetCommand(client* c);
void __wrap_configGetCommand(client* c) {
  wanted_count = 0;
  for (int i = 0; i < DIRECTIVES; i++) {
    wanted[i] = 0;
    for (int j = 2; j < c->argc; j++) {
      if (stringmatch(c->argv[j]->ptr, names[i], 1)) wanted[i] = 1;
    }
    wanted_count += wanted[i];
  }
  in_get = 1;
  __real_configGetCommand(c);
  in_get = 0;
  for (int i = 0; i < DIRECTIVES; i++) {
    if (!wanted[i]) continue;
    addReplyBulkCString(c, names[i]);
    addReplyBulkSds(c, value_of(i));
  }
}

/* ---- CONFIG SET -------------------------------------------------------------------------------------------------- */

static int is_as_it_is(int which, const char* value) {
  sds now = value_of(which);
  int same = !strcasecmp(now, value);
  sdsfree(now);
  return same;
}

static void set_ours(client* c) {
  struct memlith_config before = memlith_config;
  for (int i = 2; i + 1 < c->argc; i += 2) {
    int which = which_directive(c->argv[i]->ptr);
    const char* why = NULL;
    if (which < 0) {
      why = "directives of memlith are set by a CONFIG SET of their own";
    } else if (which < 3 && !is_as_it_is(which, c->argv[i + 1]->ptr)) {
      why = "memlith, memlith-dir and memlith-log-size are set in the configuration file, before the server starts";
    } else if (which >= 3) {
      why = set_directive(which, c->argv[i + 1]->ptr);
    }
    if (!why) continue;
    memlith_config = before;
    addReplyErrorFormat(c, "CONFIG SET failed - %s", why);
    return;
  }
  if (memlith_datastore) {
    server.aof_fsync = memlith_config.weak ? AOF_FSYNC_EVERYSEC : AOF_FSYNC_ALWAYS;
    datastore_set_durability(memlith_datastore, memlith_config.weak ? DATASTORE_WEAK : DATASTORE_STRONG,
                             memlith_config.window_ms);
    if (!memlith_config.weak && datastore_write(memlith_datastore) != 0) memlith_die("cannot write the log");
  }
  addReply(c, shared.ok);
}

/* The replacement of the append-only file cannot be switched off, nor weakened behind our back. */
static const char* refused(client* c) {
  for (int i = 2; i + 1 < c->argc; i += 2) {
    const char *name = c->argv[i]->ptr, *value = c->argv[i + 1]->ptr;
    if (!strcasecmp(name, "appendonly") && strcasecmp(value, "yes")) {
      return "memlith takes the place of the append-only file: 'appendonly no' needs a restart with 'memlith no'";
    }
    const char* as_it_is = server.aof_fsync == AOF_FSYNC_ALWAYS ? "always" : "everysec";
    if (!strcasecmp(name, "appendfsync") && strcasecmp(value, as_it_is))
      return "with memlith, memlith-durability says when writes are durable";
  }
  return NULL;
}

void __real_configSetCommand(client* c);
void __wrap_configSetCommand(client* c) {
  int ours = 0;
  for (int i = 2; i < c->argc; i += 2) ours |= which_directive(c->argv[i]->ptr) >= 0;
  if (ours && c->argc % 2 == 0) {
    set_ours(c);
    return;
  }
  const char* why = memlith_datastore ? refused(c) : NULL;
  if (why) {
    addReplyErrorFormat(c, "CONFIG SET failed - %s", why);
    return;
  }
  __real_configSetCommand(c);
  if (!memlith_datastore) return;
  /* From now on the user has said it. */
  for (int i = 2; i + 1 < c->argc; i += 2) {
    if (!strcasecmp(c->argv[i]->ptr, "save")) users.has_save = 1;
    if (!strcasecmp(c->argv[i]->ptr, "crash-memcheck-enabled")) users.memcheck = server.memcheck_enabled;
  }
}

/* ---- CONFIG REWRITE ---------------------------------------------------------------------------------------------- */

/* Redis writes the user's values, so that a plain server starts as it would have before. */
struct in_effect {
  int appendonly, appendfsync, memcheck;
};
static struct in_effect show_users(void) {
  struct in_effect kept = {server.aof_enabled, server.aof_fsync, server.memcheck_enabled};
  server.aof_enabled = users.appendonly;
  server.aof_fsync = users.appendfsync;
  server.memcheck_enabled = users.memcheck;
  return kept;
}
static void hide_users(struct in_effect kept) {
  server.aof_enabled = kept.appendonly;
  server.aof_fsync = kept.appendfsync;
  server.memcheck_enabled = kept.memcheck;
}

/* Redis makes comments of directives that it does not know ("# ??? memlith yes"), and writes `save ""` where there are
 * no save points: a user who had no `save` gets none. */
static sds put_back(sds text) {
  static const char mark[] = "# ??? memlith";
  int count;
  sds* lines = sdssplitlen(text, (ssize_t)sdslen(text), "\n", 1, &count);
  sds put = sdsempty();
  for (int i = 0; i < count; i++) {
    if (!users.has_save && !strcmp(lines[i], "save \"\"")) continue;
    int argc = 0, is_ours = !strncmp(lines[i], mark, sizeof mark - 1);
    sds* argv = is_ours ? sdssplitargs(lines[i] + strlen("# ??? "), &argc) : NULL;
    int which = argv && argc > 0 ? which_directive(argv[0]) : -1;
    if (which >= 0) {
      sds value = value_of(which);
      put = sdscatfmt(put, "%s %S", names[which], value);
      sdsfree(value);
    } else {
      put = sdscatsds(put, lines[i]);
    }
    if (argv) sdsfreesplitres(argv, argc);
    if (i + 1 < count) put = sdscat(put, "\n");
  }
  sdsfreesplitres(lines, count);
  return put;
}

static int put_back_in(const char* path) {
  FILE* file = fopen(path, "r");
  if (!file) return C_ERR;
  sds text = read_stream(sdsempty(), file);
  fclose(file);
  sds put = put_back(text);
  int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
  int done = fd != -1 && write(fd, put, sdslen(put)) == (ssize_t)sdslen(put) && fsync(fd) == 0;
  if (fd != -1) done = close(fd) == 0 && done;
  sdsfree(put);
  sdsfree(text);
  return done ? C_OK : C_ERR;
}

static int in_rewrite;

/* ORDER. The temporary file gets what is ours before it takes the place of the configuration: a crash in between would
 * leave a configuration without memlith, with which the server starts without its data. */
int __real_rename(const char* from, const char* to);
int __wrap_rename(const char* from, const char* to) {
  if (in_rewrite && server.configfile && !strcmp(to, server.configfile) && put_back_in(from) != C_OK) return -1;
  return __real_rename(from, to);
}

/* Calls of it that come from other files than Redis's config.c: DEBUG CONFIG-REWRITE-FORCE-ALL. */
int __real_rewriteConfig(char* path, int force);
int __wrap_rewriteConfig(char* path, int force) {
  if (!memlith_config.on) return __real_rewriteConfig(path, force);
  struct in_effect kept = show_users();
  in_rewrite = 1;
  int done = __real_rewriteConfig(path, force);
  in_rewrite = 0;
  hide_users(kept);
  return done;
}

void __real_configRewriteCommand(client* c);
void __wrap_configRewriteCommand(client* c) {
  if (!memlith_config.on) {
    __real_configRewriteCommand(c);
    return;
  }
  struct in_effect kept = show_users();
  in_rewrite = 1;
  __real_configRewriteCommand(c);
  in_rewrite = 0;
  hide_users(kept);
}
