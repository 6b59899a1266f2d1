# Beside Redis's or Valkey's own makefile, in whose folder it is used:
# make -f Makefile -f THIS MEMLITH=ROOT OUT=FOLDER ...
# Makes $(OUT)/redis-server, or valkey-server: the objects of the plain server and ours, and the server's calls of some
# functions come to ours. The folder stays as it was, and the server there is the plain one.
ifdef ENGINE_SERVER_OBJ
memlith_plain = $(SERVER_NAME)
memlith_cc = $(SERVER_CC) -DMEMLITH_VALKEY
memlith_server_objects = $(ENGINE_SERVER_OBJ) ../deps/fpconv/libfpconv.a
memlith_fork = serverFork
memlith_set_master = replicationSetPrimary
else
memlith_plain = $(REDIS_SERVER_NAME)
memlith_cc = $(REDIS_CC)
memlith_server_objects = $(REDIS_SERVER_OBJ)
memlith_fork = redisFork
memlith_set_master = replicationSetMaster
endif
memlith_objects = $(patsubst %,$(OUT)/%.o,config load persistence position readers record slots tracker)
memlith_datastore = $(patsubst %,$(OUT)/%.o,datastore mover records)
memlith_wraps = loadServerConfig aofLoadManifestFromDisk loadAppendOnlyFiles aofOpenIfNeededOnServerStart \
	aofDelHistoryFiles feedAppendOnlyFile flushAppendOnlyFile startAppendOnly stopAppendOnly bgrewriteaofCommand \
	debugCommand infoCommand addReplyVerbatim $(memlith_fork) addReplyMapLen configGetCommand configSetCommand \
	configRewriteCommand rewriteConfig rename $(memlith_set_master) replicaofCommand \
	dbDelete emptyData clusterBeforeSleep processCommand handleClientsWithPendingWrites \
	handleClientsWithPendingWritesUsingThreads
memlith_headers = $(wildcard $(MEMLITH)/integrations/redis/src/*.h $(MEMLITH)/integrations/redis/src/*.hpp \
	$(MEMLITH)/integrations/settled/*.hpp)

memlith-server: $(OUT)/$(memlith_plain)

$(memlith_objects): $(OUT)/%.o: $(MEMLITH)/integrations/redis/src/%.c $(memlith_headers) $(memlith_plain)
	$(memlith_cc) -Werror -I. -I$(MEMLITH)/integrations/redis/src -o $@ -c $<

$(memlith_datastore): $(OUT)/%.o: $(MEMLITH)/integrations/redis/src/%.cpp $(memlith_headers)
	$(MEMLITH_CXX) -std=c++20 -O2 -g -Wall -Wextra -Werror -I$(MEMLITH)/include -I$(MEMLITH)/integrations -o $@ -c $<

$(OUT)/$(memlith_plain): $(memlith_objects) $(memlith_datastore) $(LIBRARY) $(memlith_plain)
	$(MEMLITH_CXX) -rdynamic -g $(patsubst %,-Wl$(comma)--wrap=%,$(memlith_wraps)) -o $@ $(memlith_server_objects) \
		$(memlith_objects) $(memlith_datastore) $(LIBRARY) ../deps/hiredis/libhiredis.a ../deps/lua/src/liblua.a \
		../deps/hdr_histogram/libhdrhistogram.a $(FINAL_LIBS) -lfmt -lxxhash -luring -lzstd
comma := ,
