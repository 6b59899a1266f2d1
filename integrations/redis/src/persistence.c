/* Redis's append-only file, replaced: what Redis would append goes to the log of the datastore. plugin redis.
 *
 * ORDER. Redis flushes before it sends replies (beforeSleep), and the whole of what was fed since the last flush is one
 * entry, so a crash keeps all of a transaction or nothing. A cut is made right after a flush: what the databases hold
 * then is what the log has made of them.
 */
#include "redis.h" /* first: it says which system this is */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

datastore* memlith_datastore;

#define CUT_KEYS 512
#define CUT_BYTES (1 << 20)
#define CUT_US 100000

static int has_started;    /* the data was loaded once */
static int detached;       /* between stopAppendOnly and startAppendOnly: a replica is loading another data set */
static int in_transaction; /* MULTI was fed, EXEC was not */
static int replaced;       /* the data has changed, but not by commands: all of it is to be put into the kv store */
static int brought;        /* another server may have given us a key, and removes its own when we say that we have it */
static size_t appended;    /* bytes since the last cut */
static monotime last_cut, last_entry;
static pid_t owner;
static char store_path[PATH_MAX];

/* For INFO. */
static long long cut_us_last, cut_us_max;

void memlith_die(const char* what) {
  serverLog(LL_WARNING, "memlith: %s: %s. Exiting, because nothing can be made durable any more; restart the server.",
            what, memlith_datastore ? datastore_error(memlith_datastore) : "");
  _exit(1);
}

void memlith_replaced(void) {
  replaced = 1;
  position_void();
}

/* ---- cuts -------------------------------------------------------------------------------------------------------- */

static void cut(void) {
  monotime began = getMonotonicUs();
  if (tracker_wants_everything()) {
    serverLog(LL_NOTICE,
              "memlith: a command whose keys are not known was run; all data is being put into the kv store");
    if (tracker_cut_all() != C_OK) memlith_die("cannot write the kv store");
  } else {
    tracker_cut();
  }
  position_say();
  if (datastore_cut(memlith_datastore) != 0) memlith_die("cannot write the kv store");
  appended = 0;
  last_cut = getMonotonicUs();
  cut_us_last = (long long)(last_cut - began);
  if (cut_us_last > cut_us_max) cut_us_max = cut_us_last;
}

/* True if the databases hold what the log has made of them, and nothing more: no command, transaction or script is half
 * done. While a long script runs, Redis serves events, and flushes. */
static int is_whole(void) {
  return !in_transaction && !ProcessingEventsWhileBlocked && server.also_propagate.numops == 0;
}

static void cut_if_due(void) {
  if (appended == 0 || !is_whole()) return;
  size_t bytes = memlith_config.log_bytes / 16 < CUT_BYTES ? memlith_config.log_bytes / 16 : CUT_BYTES;
  if (tracker_changed() >= CUT_KEYS || appended >= bytes || tracker_wants_everything() ||
      getMonotonicUs() - last_cut >= CUT_US) {
    cut();
  }
}

/* All that there is, to new maps: what the kv store had is replaced when the last piece is there.
 * ORDER. Durable before the next entry of the log: the data did not come from the log, so what is behind it in the log
 * means nothing without it. */
int memlith_full_cut(void) {
  int said = tracker_cut_all() == C_OK;
  if (said) position_say();
  if (!said || datastore_cut(memlith_datastore) != 0 || datastore_checkpoint(memlith_datastore) != 0) {
    serverLog(LL_WARNING, "memlith: cannot write the kv store: %s", datastore_error(memlith_datastore));
    return C_ERR;
  }
  appended = 0;
  replaced = 0;
  last_cut = getMonotonicUs();
  return C_OK;
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

void __real_feedAppendOnlyFile(int db, robj** argv, int argc);
void __wrap_feedAppendOnlyFile(int db, robj** argv, int argc) {
  __real_feedAppendOnlyFile(db, argv, argc);
  if (!memlith_datastore) return;
  const char* name = argv[0]->ptr;
  if (!strcasecmp(name, "multi")) in_transaction = 1;
  if (!strcasecmp(name, "exec")) in_transaction = 0;
  if (!server.masterhost && (!strcasecmp(name, "restore") || !strcasecmp(name, "restore-asking"))) brought = 1;
  tracker_note(db, argv, argc);
}

/* Like a failed write of an append-only file: Redis refuses commands that write (MISCONF) until there is room. */
static void note_room(int has_room) {
  if (has_room == (server.aof_last_write_status == C_OK)) return;
  server.aof_last_write_status = has_room ? C_OK : C_ERR;
  server.aof_last_write_errno = has_room ? 0 : ENOSPC;
  serverLog(LL_WARNING, has_room ? "memlith: the disk has room again; writes are accepted"
                                 : "memlith: the disk has no room; writes are refused until there is");
}

/* Appends what Redis has fed, and the position in the replication stream behind it. DATASTORE_NO_ROOM: nothing was
 * done; then no cut may be made either, because the keys are ahead of the log. */
static int append_entry(int may_be_ahead) {
  size_t fed = sdslen(server.aof_buf);
  mstime_t latency;
  latencyStartMonitor(latency);
  server.aof_buf = position_note(server.aof_buf);
  size_t bytes = sdslen(server.aof_buf);
  int status = may_be_ahead ? datastore_append_ahead(memlith_datastore, server.aof_buf, bytes) : DATASTORE_NO_ROOM;
  if (status == DATASTORE_NO_ROOM) status = datastore_append(memlith_datastore, server.aof_buf, bytes);
  if (status == DATASTORE_NO_ROOM && brought) memlith_die("no room for a key that another server removes");
  if (status == DATASTORE_NO_ROOM) {
    sdssubstr(server.aof_buf, 0, fed);
    return status;
  }
  if (status != 0) memlith_die("cannot write the log");
  if (brought && memlith_config.weak && datastore_write(memlith_datastore) != 0) memlith_die("cannot write the log");
  brought = 0;
  latencyEndMonitor(latency);
  latencyAddSampleIfNeeded("memlith-log", latency);
  appended += bytes;
  if (sdsalloc(server.aof_buf) < 65536) {
    sdsclear(server.aof_buf);
  } else {
    sdsfree(server.aof_buf);
    server.aof_buf = sdsempty();
  }
  server.aof_selected_db = -1; /* each entry says which database it is about */
  last_entry = getMonotonicUs();
  return 0;
}

/* The stream goes on without changes of the data: a master sends PING, and asks for acknowledgements. A server that has
 * no change to write for a while writes the position alone, so that a crash then leaves the one that its peers know. */
static int position_is_due(void) {
  return sdslen(server.aof_buf) == 0 && is_whole() && !replaced && server.aof_state == AOF_ON &&
         datastore_has_room(memlith_datastore) && getMonotonicUs() - last_entry >= CUT_US && position_has_moved();
}

void __real_flushAppendOnlyFile(int force);
void __wrap_flushAppendOnlyFile(int force) {
  if (!memlith_datastore) {
    __real_flushAppendOnlyFile(force);
    return;
  }
  if (datastore_failed(memlith_datastore)) memlith_die("a write in the background failed");
  int may_be_ahead = readers_turn(&force);
  if (replaced && is_whole() && server.aof_state == AOF_ON) {
    /* This has the effects of what was fed, too. */
    if (memlith_full_cut() != C_OK) memlith_die("cannot write the kv store");
    sdsclear(server.aof_buf);
    server.aof_selected_db = -1;
  }
  if (sdslen(server.aof_buf) > 0 && !in_transaction && !replaced && append_entry(may_be_ahead) == DATASTORE_NO_ROOM) {
    note_room(0);
    return;
  }
  note_room(datastore_has_room(memlith_datastore));
  if (force && datastore_write(memlith_datastore) != 0) memlith_die("cannot write the log");
  if (position_is_due()) append_entry(may_be_ahead);
  cut_if_due();
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static void close_at_exit(void) {
  if (!memlith_datastore || getpid() != owner) return;
  if (!detached && server.aof_state == AOF_ON && !server.loading) {
    flushAppendOnlyFile(1);
    int has_room = sdslen(server.aof_buf) == 0 && datastore_has_room(memlith_datastore);
    if (!has_room) serverLog(LL_WARNING, "memlith: the disk has no room for the last writes: they are lost");
    if (has_room && is_whole()) cut();
  }
  datastore* closing = memlith_datastore;
  memlith_datastore = NULL;
  if (datastore_close(closing) != 0) {
    serverLog(LL_WARNING, "memlith: the store was not closed cleanly; the next start recovers it");
  }
}

static void open_datastore(void) {
  char why[1024];
  memlith_datastore = datastore_open(memlith_config.folder, memlith_config.log_bytes, why, sizeof why);
  if (!memlith_datastore) {
    serverLog(LL_WARNING, "memlith: cannot open the store \"%s\": %s", memlith_config.folder, why);
    exit(1);
  }
  if (!realpath(memlith_config.folder, store_path)) store_path[0] = 0;
  /* Redis syncs this descriptor when it shuts down. */
  server.aof_fd = open(memlith_config.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  owner = getpid();
  tracker_init();
  atexit(close_at_exit);
}

void __real_aofLoadManifestFromDisk(void);
void __wrap_aofLoadManifestFromDisk(void) {
  if (!memlith_config.on) {
    __real_aofLoadManifestFromDisk();
    return;
  }
  server.aof_manifest = NULL; /* DEBUG LOADAOF has freed it */
  if (!memlith_datastore) open_datastore();
}

int __real_loadAppendOnlyFiles(aofManifest* manifest);
int __wrap_loadAppendOnlyFiles(aofManifest* manifest) {
  if (!memlith_config.on) return __real_loadAppendOnlyFiles(manifest);
  int imported = 0;
  int failed = memlith_load(&imported) != C_OK ||
               datastore_start(memlith_datastore, memlith_config.weak ? DATASTORE_WEAK : DATASTORE_STRONG,
                               memlith_config.window_ms) != 0;
  if (failed || (imported && memlith_full_cut() != C_OK)) return AOF_FAILED;
  if (!has_started) position_take();
  has_started = 1;
  cut();
  cut_us_last = cut_us_max = 0;
  return AOF_OK;
}

void __real_aofOpenIfNeededOnServerStart(void);
void __wrap_aofOpenIfNeededOnServerStart(void) {
  if (!memlith_config.on) __real_aofOpenIfNeededOnServerStart();
}

int __real_aofDelHistoryFiles(void);
int __wrap_aofDelHistoryFiles(void) { return memlith_config.on ? C_OK : __real_aofDelHistoryFiles(); }

/* A replica begins to load another data set; the old one stays durable until the new one is. */
void __real_stopAppendOnly(void);
void __wrap_stopAppendOnly(void) {
  if (!memlith_datastore) {
    __real_stopAppendOnly();
    return;
  }
  flushAppendOnlyFile(1);
  cut();
  server.aof_state = AOF_OFF;
  detached = 1;
}

int __real_startAppendOnly(void);
int __wrap_startAppendOnly(void) {
  if (!memlith_datastore) return __real_startAppendOnly();
  if (memlith_full_cut() != C_OK) return C_ERR;
  sdsclear(server.aof_buf);
  server.aof_selected_db = -1;
  in_transaction = 0;
  server.aof_state = AOF_ON;
  detached = 0;
  return C_OK;
}

/* A child that saves must not hold the store: it may outlive this process, and the next one has to open it. */
static void close_store_in_child(void) {
  DIR* folder = opendir("/proc/self/fd");
  if (!folder) return;
  size_t path_bytes = strlen(store_path);
  struct dirent* entry;
  while ((entry = readdir(folder)) != NULL) {
    char name[64], target[PATH_MAX];
    int fd = atoi(entry->d_name);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(name, target, sizeof target - 1);
    if (bytes <= 0 || fd == dirfd(folder)) continue;
    target[bytes] = 0;
    if (!strncmp(target, store_path, path_bytes) || strstr(target, "io_uring")) close(fd);
  }
  closedir(folder);
}

#ifdef MEMLITH_VALKEY
#define REAL_FORK __real_serverFork
#define WRAP_FORK __wrap_serverFork
#else
#define REAL_FORK __real_redisFork
#define WRAP_FORK __wrap_redisFork
#endif
int REAL_FORK(int purpose);
int WRAP_FORK(int purpose) {
  int child = REAL_FORK(purpose);
  if (child == 0 && memlith_datastore && store_path[0]) {
    memlith_datastore = NULL;
    close_store_in_child();
  }
  return child;
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

void __real_bgrewriteaofCommand(client* c);
void __wrap_bgrewriteaofCommand(client* c) {
  if (!memlith_datastore) {
    __real_bgrewriteaofCommand(c);
    return;
  }
  addReplyStatus(c, "memlith has no append-only file to rewrite: a thread keeps the kv store up to date");
}

/* DEBUG RELOAD with options changes the data behind the log's back; the next flush is before its reply. */
void __real_debugCommand(client* c);
void __wrap_debugCommand(client* c) {
  int reload = memlith_datastore && c->argc > 2 && !strcasecmp(c->argv[1]->ptr, "reload");
  __real_debugCommand(c);
  if (reload) memlith_replaced();
}

static sds facts_of(sds to) {
  datastore_facts facts;
  if (!memlith_datastore) return sdscat(to, "memlith_enabled:0\r\n");
  to = sdscatprintf(to,
                    "memlith_enabled:1\r\nmemlith_durability:%s\r\nmemlith_window_ms:%llu\r\nmemlith_attached:%d\r\n",
                    memlith_config.weak ? "weak" : "strong", memlith_config.window_ms, !detached);
  if (datastore_get_facts(memlith_datastore, &facts) != 0) return sdscat(to, "memlith_status:err\r\n");
  return sdscatprintf(
      to,
      "memlith_status:%s\r\nmemlith_log_size:%llu\r\nmemlith_log_used:%llu\r\nmemlith_log_newest_entry:%llu\r\n"
      "memlith_log_durable_entry:%llu\r\nmemlith_kv_entry:%llu\r\nmemlith_kv_waiting_bytes:%llu\r\n"
      "memlith_kv_records:%llu\r\nmemlith_kv_region_bytes:%llu\r\nmemlith_changed_keys:%zu\r\nmemlith_cuts:%llu\r\n"
      "memlith_cut_last_us:%lld\r\nmemlith_cut_max_us:%lld\r\nmemlith_waits_for_room:%llu\r\n",
      datastore_failed(memlith_datastore) ? "err" : "ok", (unsigned long long)facts.log_bytes,
      (unsigned long long)facts.log_used, (unsigned long long)facts.entries, (unsigned long long)facts.durable,
      (unsigned long long)facts.cut, (unsigned long long)facts.waiting_bytes, (unsigned long long)facts.records,
      (unsigned long long)facts.region_bytes, tracker_changed(), (unsigned long long)facts.cuts, cut_us_last,
      cut_us_max, (unsigned long long)facts.waits);
}

/* INFO: our lines follow the heading of the section on persistence. */
static int in_info;
void __real_infoCommand(client* c);
void __wrap_infoCommand(client* c) {
  in_info = 1;
  __real_infoCommand(c);
  in_info = 0;
}

void __real_addReplyVerbatim(client* c, const char* text, size_t bytes, const char* kind);
void __wrap_addReplyVerbatim(client* c, const char* text, size_t bytes, const char* kind) {
  static const char heading[] = "# Persistence\r\n";
  const char* found = in_info ? strstr(text, heading) : NULL;
  if (!found) {
    __real_addReplyVerbatim(c, text, bytes, kind);
    return;
  }
  size_t before = (size_t)(found - text) + sizeof heading - 1;
  sds whole = sdscatlen(facts_of(sdsnewlen(text, before)), text + before, bytes - before);
  __real_addReplyVerbatim(c, whole, sdslen(whole), kind);
  sdsfree(whole);
}
