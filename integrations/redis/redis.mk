# Beside Redis's own makefile, in whose folder it is used: make -f Makefile -f THIS MEMLITH=ROOT OUT=FOLDER ...
# Makes $(OUT)/redis-server: the objects of the plain server and ours, and Redis's calls of some functions come to ours.
# Redis's folder stays as it was, and `redis-server` there is the plain server.
memlith_objects = $(patsubst %,$(OUT)/%.o,config load persistence position record slots tracker)
memlith_datastore = $(patsubst %,$(OUT)/%.o,datastore mover records)
memlith_wraps = loadServerConfig aofLoadManifestFromDisk loadAppendOnlyFiles aofOpenIfNeededOnServerStart \
	aofDelHistoryFiles feedAppendOnlyFile flushAppendOnlyFile startAppendOnly stopAppendOnly bgrewriteaofCommand \
	debugCommand infoCommand addReplyVerbatim redisFork addReplyMapLen configGetCommand configSetCommand \
	configRewriteCommand rewriteConfig rename replicationSetMaster replicaofCommand \
	dbDelete emptyData clusterBeforeSleep
memlith_headers = $(wildcard $(MEMLITH)/integrations/redis/src/*.h $(MEMLITH)/integrations/redis/src/*.hpp)

memlith-server: $(OUT)/redis-server

$(memlith_objects): $(OUT)/%.o: $(MEMLITH)/integrations/redis/src/%.c $(memlith_headers) $(REDIS_SERVER_NAME)
	$(REDIS_CC) -Werror -I. -I$(MEMLITH)/integrations/redis/src -o $@ -c $<

$(memlith_datastore): $(OUT)/%.o: $(MEMLITH)/integrations/redis/src/%.cpp $(memlith_headers)
	$(MEMLITH_CXX) -std=c++20 -O2 -g -Wall -Wextra -Werror -I$(MEMLITH)/include -I$(MEMLITH)/integrations -o $@ -c $<

$(OUT)/redis-server: $(memlith_objects) $(memlith_datastore) $(LIBRARY) $(REDIS_SERVER_NAME)
	$(MEMLITH_CXX) -rdynamic -g $(patsubst %,-Wl$(comma)--wrap=%,$(memlith_wraps)) -o $@ $(REDIS_SERVER_OBJ) \
		$(memlith_objects) $(memlith_datastore) $(LIBRARY) ../deps/hiredis/libhiredis.a ../deps/lua/src/liblua.a \
		../deps/hdr_histogram/libhdrhistogram.a $(FINAL_LIBS) -lfmt -lxxhash -luring -lzstd
comma := ,
