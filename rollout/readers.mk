# The judging part: verdicts (pure), report readers and the confined worker that runs them.
ROLLOUT_OBJS += $(addprefix $(B)/rollout/,verdict.o report_env.o worker_pool.o worker_job.o worker_wire.o)

READER_OBJS := $(addprefix $(B)/rollout/,report.o report_junit.o report_pytest.o report_pytest_text.o report_tap.o report_exit.o)
# What the worker program is made of beside its main's own needs; the fuzzers link it too.
WORKER_OBJS := $(addprefix $(B)/rollout/,worker.o worker_wire.o verdict.o) $(READER_OBJS)
WORKER_REST := $(B)/rollout/worker_confine.o

# The importer is the same program with another profile; it answers in wire format.
ifneq ($(wildcard rollout/importer.c),)
WORKER_REST += $(addprefix $(B)/rollout/,importer.o wire.o wire_catalog.o) $(B)/librepos.a $(B)/libproto.a
WORKER_LIBS = $(LIBS_proto)
$(B)/rollout/worker.o: CFLAGS += -DASSAY_WITH_IMPORTER
endif

$(BIN)/assay-worker: $(WORKER_OBJS) $(WORKER_REST) $(B)/librepos.a $(B)/libbase.a
	@mkdir -p $(@D)
	@$(if $(V),,echo "LD $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $(WORKER_OBJS) $(WORKER_REST) $(B)/librepos.a $(B)/libbase.a \
	  $(LIBS_repos) $(WORKER_LIBS) $(LIBS_base) -lexpat -lseccomp -lm
BINS += $(BIN)/assay-worker

READER_TESTS := $(addprefix $(B)/tests/rollout/,verdict_test report_test)
WORKER_TEST  := $(B)/tests/rollout/worker_test
UNIT_TESTS += $(READER_TESTS) $(WORKER_TEST)

$(READER_TESTS): %: %.o $(READER_OBJS) $(B)/rollout/verdict.o $(B)/rollout/report_env.o $(B)/libbase.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_base) -lexpat -lcmocka

# Drives the real program, so that needs to be there.
$(WORKER_TEST): $(WORKER_TEST).o $(B)/rollout/worker_pool.o $(B)/rollout/worker_job.o $(B)/rollout/worker_wire.o $(B)/rollout/worker_confine.o \
                $(B)/rollout/verdict.o $(B)/librepos.a $(B)/libbase.a | $(BIN)/assay-worker
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -Wl,--wrap=clock_mono_ns -o $@ $^ $(LIBS_repos) $(LIBS_base) -lseccomp -lcmocka

-include $(WORKER_OBJS:.o=.d) $(addprefix $(B)/rollout/,worker_confine.d importer.d) $(READER_TESTS:=.d) $(WORKER_TEST).d \
         $(addprefix $(B)/rollout/,report_env.d worker_pool.d worker_job.d)
