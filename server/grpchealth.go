package server

import (
	"context"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
)

const (
	// healthName is the service of the gRPC health checking protocol.
	healthName = "grpc.health.v1.Health"
	// watchInterval is how often a watcher looks for a change.
	watchInterval = time.Second
)

// The answers of the protocol, by number.
const (
	serving        = protoreflect.EnumNumber(1)
	notServing     = protoreflect.EnumNumber(2)
	serviceUnknown = protoreflect.EnumNumber(3)
)

// healthFile describes the protocol as its authors published it. It is kept out of the global registry: a program may
// hold a file of that name once, and it should be free to link the authors' own.
var healthFile = mustBuild(`
	name: "grpc/health/v1/health.proto" package: "grpc.health.v1" syntax: "proto3"
	message_type: { name: "HealthCheckRequest" field: { name: "service" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING json_name: "service" } }
	message_type: {
		name: "HealthCheckResponse"
		field: { name: "status" number: 1 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".grpc.health.v1.HealthCheckResponse.ServingStatus" json_name: "status" }
		enum_type: {
			name: "ServingStatus"
			value: { name: "UNKNOWN" number: 0 } value: { name: "SERVING" number: 1 }
			value: { name: "NOT_SERVING" number: 2 } value: { name: "SERVICE_UNKNOWN" number: 3 }
		}
	}
	service: {
		name: "Health"
		method: { name: "Check" input_type: ".grpc.health.v1.HealthCheckRequest" output_type: ".grpc.health.v1.HealthCheckResponse" }
		method: { name: "Watch" input_type: ".grpc.health.v1.HealthCheckRequest" output_type: ".grpc.health.v1.HealthCheckResponse" server_streaming: true }
	}`)

func mustBuild(text string) protoreflect.FileDescriptor {
	file := &descriptorpb.FileDescriptorProto{}
	if err := prototext.Unmarshal([]byte(text), file); err != nil {
		panic(err) // a constant of this file
	}
	built, err := protodesc.NewFile(file, nil)
	if err != nil {
		panic(err)
	}
	return built
}

// descriptors resolves what reflection is asked for: the linked files, and the health protocol.
type descriptors struct{}

// FindFileByPath implements protodesc.Resolver.
func (descriptors) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if path == healthFile.Path() {
		return healthFile, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (descriptors) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	for _, known := range []protoreflect.Descriptor{healthFile.Services().Get(0), healthFile.Messages().Get(0), healthFile.Messages().Get(1)} {
		if known.FullName() == name || known.FullName() == name.Parent() {
			return known, nil
		}
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}

// healthService answers grpc.health.v1 out of the same readiness as /readyz.
type healthService struct{ readiness *Readiness }

func (h healthService) methods() []connect.Method {
	methods := healthFile.Services().Get(0).Methods()
	spec := func(name protoreflect.Name, kind connect.StreamType) connect.Spec {
		return connect.Spec{Procedure: "/" + healthName + "/" + string(name), StreamType: kind, Schema: methods.ByName(name)}
	}
	return []connect.Method{
		{Spec: spec("Check", connect.StreamTypeUnary), Handler: h.check},
		{Spec: spec("Watch", connect.StreamTypeServer), Handler: h.watch},
	}
}

var healthServices = map[string]bool{
	"": true, ktmsv1connect.GatewayServiceName: true, ktmsv1connect.AdminServiceName: true,
	ktmsv1connect.NodeRegistryServiceName: true,
}

func (h healthService) check(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
	service, err := requested(stream)
	if err != nil {
		return err
	}
	if !healthServices[service] {
		return connect.Errorf(connect.CodeNotFound, "unknown service %q", service)
	}
	return stream.Send(answered(h.status(ctx)))
}

// watch sends the state now, and then each change. An unknown service is reported as such and watched on, as the
// protocol asks.
func (h healthService) watch(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
	service, err := requested(stream)
	if err != nil {
		return err
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	last := protoreflect.EnumNumber(0)
	for {
		now := serviceUnknown
		if healthServices[service] {
			now = h.status(ctx)
		}
		if now != last {
			last = now
			if err := stream.Send(answered(now)); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if h.readiness.Draining() {
				return connect.NewError(connect.CodeUnavailable, "shutting down") // or watchers would hold up the end
			}
		}
	}
}

func requested(stream connect.ServerStream) (service string, err error) {
	request := dynamicpb.NewMessage(healthFile.Messages().ByName("HealthCheckRequest"))
	if err := stream.Receive(request); err != nil {
		return "", err
	}
	return request.Get(request.Descriptor().Fields().Get(0)).String(), nil
}

func answered(status protoreflect.EnumNumber) *dynamicpb.Message {
	response := dynamicpb.NewMessage(healthFile.Messages().ByName("HealthCheckResponse"))
	response.Set(response.Descriptor().Fields().Get(0), protoreflect.ValueOfEnum(status))
	return response
}

func (h healthService) status(ctx context.Context) protoreflect.EnumNumber {
	switch h.readiness.Check(ctx) {
	case Ready, Degraded:
		return serving
	default:
		return notServing
	}
}
