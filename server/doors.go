package server

import (
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	connectcors "connectrpc.com/cors"
	"connectrpc.com/grpcreflect/v2"
	"github.com/google/uuid"
	"github.com/rs/cors"

	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server/access"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/gateway"
	"github.com/ai-process/ktms/server/openai"
	"github.com/ai-process/ktms/server/status"
)

// headerRequestID names the id that a response, its log lines and its usage events share.
const headerRequestID = "X-KTMS-Request-Id"

// writeStall is how long a client may take nothing of what is sent to it. Slow readers take something.
const writeStall = time.Minute

// corsMaxAge is how long a browser may remember a preflight, in seconds; browsers cap it at about this.
const corsMaxAge = 7200

// rpcDoor serves gRPC, gRPC-Web and Connect.
func (s *Server) rpcDoor(data ktmsv1connect.GatewayServiceHandler, control ktmsv1connect.AdminServiceHandler,
	machines ktmsv1connect.NodeRegistryServiceHandler,
) *http.Server {
	rpc := connect.NewServer()
	ktmsv1connect.RegisterGatewayServiceHandler(rpc, data)
	ktmsv1connect.RegisterAdminServiceHandler(rpc, control)
	ktmsv1connect.RegisterNodeRegistryServiceHandler(rpc, machines)
	rpc.Register(healthService{s.readiness}.methods()...)
	grpcreflect.Register(rpc, grpcreflect.WithDescriptorResolver(descriptors{}))
	mux := http.NewServeMux()
	connecthttp.Mount(mux, rpc, connecthttp.WithReadMaxBytes(int(s.options.MaxMessage)),
		connecthttp.WithCodecs(connectproto.NewBinaryCodec(), strictJSON()))

	keyless := []string{"/" + healthName + "/"}
	if !s.options.ReflectionRequiresKey {
		keyless = append(keyless, "/"+grpcreflect.ReflectV1ServiceName+"/", "/"+grpcreflect.ReflectV1AlphaServiceName+"/")
	}
	errors := connecthttp.NewErrorWriter()
	handler := s.keys.Middleware(access.RPCDoors(keyless...), mux)
	handler = s.crossOrigin(handler) // outside access, since a preflight carries no key
	return s.newHTTPServer(s.identify(s.guarded(handler, func(w http.ResponseWriter, r *http.Request, err error) {
		_ = errors.Write(w, r, status.RPC(err))
	})))
}

// strictJSON refuses members that no message has. Ignoring them would turn one misspelt word into a rule without its
// condition, or into an empty rule set.
func strictJSON() *connectproto.JSONCodec {
	codec := connectproto.NewJSONCodec()
	codec.UnmarshalOptions.DiscardUnknown = false
	return codec
}

func (s *Server) crossOrigin(next http.Handler) http.Handler {
	if len(s.options.CORSOrigins) == 0 {
		return next
	}
	return cors.New(cors.Options{
		AllowedOrigins: s.options.CORSOrigins,
		AllowedMethods: connectcors.AllowedMethods(),
		AllowedHeaders: append(connectcors.AllowedHeaders(), "Authorization"),
		ExposedHeaders: slices.Concat(connectcors.ExposedHeaders(), status.HeaderNames(), []string{headerRequestID, "X-KTMS-Vendor", "X-KTMS-Rule",
			"X-KTMS-Placement", "X-KTMS-Route-Mode", "X-KTMS-Judge-Score", "X-KTMS-Judge-Model", "X-KTMS-Dropped-Params"}),
		MaxAge: corsMaxAge,
	}).Handler(next)
}

// httpDoor serves the OpenAI-compatible API and the probes.
func (s *Server) httpDoor(service *gateway.Service) *http.Server {
	mux := http.NewServeMux()
	probes(mux, s.options.Version, s.readiness)
	if s.options.APIEnabled {
		api := openai.New(openai.Options{
			Gateway: service, MaxBody: s.options.MaxBody, Timeout: s.options.APITimeout,
			LegacyHeaders: s.options.LegacyHeaders, LegacySeen: s.options.Metrics.LegacyHeader,
		})
		mux.Handle("/", s.keys.Middleware(access.OpenAIDoors(), api))
	}
	return s.newHTTPServer(s.identify(s.guarded(mux, func(w http.ResponseWriter, _ *http.Request, err error) {
		status.WriteOpenAI(w, err)
	})))
}

// identify gives every request its id.
func (s *Server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := uuid.Must(uuid.NewV7()).String()
		w.Header().Set(headerRequestID, id)
		next.ServeHTTP(w, r.WithContext(caller.WithRequestID(r.Context(), id)))
	})
}

// guarded gives every body a time by which it must have come, and every write one by which the client must have taken
// it; neither bounds the time that a model takes. A panic becomes the door's internal error, or cuts the response if it
// has begun.
func (s *Server) guarded(next http.Handler, refuse func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &response{ResponseWriter: w, control: http.NewResponseController(w)}
		if r.Body != nil && r.Body != http.NoBody {
			_ = out.control.SetReadDeadline(time.Now().Add(s.options.APITimeout))
			r.Body = &timedBody{ReadCloser: r.Body, control: out.control}
		}
		defer func() {
			trouble := recover()
			if trouble == nil {
				return
			}
			if trouble == http.ErrAbortHandler {
				panic(trouble)
			}
			s.options.Log.Error("a call panicked", "request_id", caller.RequestID(r.Context()), "panic", trouble,
				"stack", string(debug.Stack()))
			if out.began {
				panic(http.ErrAbortHandler)
			}
			refuse(w, r, status.New(status.Internal, "internal error"))
		}()
		next.ServeHTTP(out, r)
		_ = out.control.SetWriteDeadline(time.Time{}) // the connection serves other requests
	})
}

// timedBody lifts the read deadline at the body's end: from there on, it would cut a long answer.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// response ends when its client has stopped reading, instead of holding a vendor's call open for it, and knows whether
// it has begun.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	began   bool
}

func (r *response) WriteHeader(code int) {
	r.began = true
	r.ResponseWriter.WriteHeader(code)
}

func (r *response) Write(p []byte) (int, error) {
	r.began = true
	_ = r.control.SetWriteDeadline(time.Now().Add(writeStall))
	return r.ResponseWriter.Write(p)
}

// FlushError implements the flushing of http.ResponseController.
func (r *response) FlushError() error {
	r.began = true
	return r.control.Flush()
}

// Flush implements http.Flusher, which the RPC handlers look for.
func (r *response) Flush() { _ = r.FlushError() }

// Unwrap lets http.ResponseController reach the real writer.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }
