# repos: tasks, the store of trees, patches onto trees.
REPOS_OBJS := $(addprefix $(B)/repos/,task.o catalog.o catalog_row.o catalog_list.o tree.o materialise.o store.o \
                patch.o notes.o binary.o hunks.o apply.o merge.o mine.o image.o data.o image_git.o tar.o archive.o layout.o oci.o)
CFLAGS_repos := $(shell pkg-config --cflags libgit2 jansson sqlite3 zlib libarchive)
# libarchive brings libxml2 and ICU with it: 12 libraries that only a program which reads archives shall load.
LIBS_repos := $(shell pkg-config --libs libgit2 jansson sqlite3 zlib) -Wl,--push-state,--as-needed $(shell pkg-config --libs libarchive) -Wl,--pop-state

$(B)/librepos.a: $(REPOS_OBJS)
	@rm -f $@; $(AR) rcs $@ $^

REPOS_TESTS := $(addprefix $(B)/tests/repos/,task_test catalog_test store_test handed_test patch_git_test merge_test image_test \
                 archive_test oci_test)
UNIT_TESTS += $(REPOS_TESTS)

$(REPOS_TESTS): %: %.o $(B)/librepos.a $(B)/libbase.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_repos) $(LIBS_base) -lcmocka

-include $(REPOS_OBJS:.o=.d) $(REPOS_TESTS:=.d)

BENCHES += $(BIN)/bench_catalog
$(BIN)/bench_catalog: $(B)/tests/bench/bench_catalog.o $(B)/librepos.a $(B)/libbase.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_repos) $(LIBS_base)

-include $(B)/tests/bench/bench_catalog.d
