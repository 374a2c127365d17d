# The judging part: verdicts (pure), report readers and the confined worker that runs them.
ROLLOUT_OBJS += $(addprefix $(B)/rollout/,verdict.o)
