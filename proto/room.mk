# proto: what others must read: generated protobuf code, record framing, and gRPC over nghttp2.
PROTO_NAMES := verdict rollout trajectory policy catalog
PROTO_GEN_H := $(addprefix $(B)/gen/assay/v1/,$(addsuffix .pb-c.h,$(PROTO_NAMES)))
PROTO_GEN_C := $(PROTO_GEN_H:.h=.c)
PROTO_GEN_OBJS := $(PROTO_GEN_C:.c=.o)
PROTO_OBJS := $(patsubst %.c,$(B)/%.o,$(wildcard proto/*.c))
LIBS_proto := $(shell pkg-config --libs libprotobuf-c libnghttp2 libuv)

$(B)/libproto.a: $(PROTO_OBJS) $(PROTO_GEN_OBJS)
	@rm -f $@; $(AR) rcs $@ $^

# Whoever includes a generated header lists $(PROTO_GEN_H) order-only, so that it is there before the first compile.
$(B)/gen/%.pb-c.c $(B)/gen/%.pb-c.h: proto/%.proto
	@mkdir -p $(B)/gen
	@$(if $(V),,echo "PROTOC $<")
	$(Q)protoc-c -Iproto --c_out=$(B)/gen $<

# -w: generated code keeps its own style.
$(PROTO_GEN_OBJS): $(B)/gen/%.o: $(B)/gen/%.c | $(PROTO_GEN_H)
	$(Q)$(CC) $(CFLAGS) -w -c -o $@ $<

# The same schema for Python callers (tests, examples): build/py on PYTHONPATH, `from assay.v1 import rollout_pb2_grpc`.
.PHONY: pystubs
PYSTUBS_OK := build/py/.ok
pystubs: $(PYSTUBS_OK)
$(PYSTUBS_OK): build/venv/.ok $(wildcard proto/assay/v1/*.proto)
	@mkdir -p build/py/assay/v1
	@$(PY) -m grpc_tools.protoc -Iproto --python_out=build/py --grpc_python_out=build/py $(sort $(wildcard proto/assay/v1/*.proto))
	@touch build/py/assay/__init__.py build/py/assay/v1/__init__.py $@

-include $(PROTO_OBJS:.o=.d) $(PROTO_GEN_OBJS:.o=.d)

# Tests: the transport against itself, and an echo server for the Python tests and the bench.
GRPC_TEST_LIBS = $(B)/libproto.a $(B)/libbase.a $(LIBS_proto) $(LIBS_base)
UNIT_TESTS += $(B)/tests/proto/grpc_test
$(B)/tests/proto/grpc_test: $(B)/tests/proto/grpc_test.o $(B)/tests/proto/echo.o $(B)/libproto.a $(B)/libbase.a
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(GRPC_TEST_LIBS) -lcmocka -lpthread
# Helpers of the Python tests and of the bench.
GRPC_HELPERS := $(addprefix $(B)/tests/proto/,echo_server grpc_call)
$(B)/tests/proto/echo_server: $(B)/tests/proto/echo_server.o $(B)/tests/proto/echo.o $(B)/libproto.a $(B)/libbase.a
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(GRPC_TEST_LIBS)
$(B)/tests/proto/grpc_call: $(B)/tests/proto/grpc_call.o $(B)/libproto.a $(B)/libbase.a
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(GRPC_TEST_LIBS)
units: $(GRPC_HELPERS)
-include $(addprefix $(B)/tests/proto/,grpc_test.d echo.d echo_server.d grpc_call.d)

# Bench: the same load on our echo server and on grpcio's.
BENCHES += tests/bench/bench_grpc.py
bench: $(GRPC_HELPERS) $(B)/tests/bench/grpc_load
$(B)/tests/bench/grpc_load: $(B)/tests/bench/grpc_load.o $(B)/libproto.a $(B)/libbase.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(GRPC_TEST_LIBS)
-include $(B)/tests/bench/grpc_load.d
