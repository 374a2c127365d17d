# The judging part: verdicts (pure), report readers and the confined worker that runs them.
ROLLOUT_OBJS += $(addprefix $(B)/rollout/,verdict.o report_env.o)

READER_OBJS := $(addprefix $(B)/rollout/,verdict.o report.o report_junit.o report_pytest.o report_pytest_text.o report_tap.o report_exit.o)
READER_TESTS := $(addprefix $(B)/tests/rollout/,verdict_test report_test)
UNIT_TESTS += $(READER_TESTS)

$(READER_TESTS): %: %.o $(READER_OBJS) $(B)/rollout/report_env.o $(B)/libbase.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS_base) -lexpat -lcmocka

-include $(READER_OBJS:.o=.d) $(READER_TESTS:=.d)
