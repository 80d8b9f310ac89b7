package access

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
)

const (
	// maxKeylessBody bounds what anybody may send: a health check or a reflection query is a few dozen bytes.
	maxKeylessBody = 64 << 10
	// refusedBody is how long the rest of a refused request is waited for, so that clients that write before they read
	// still get to see why.
	refusedBody = time.Second
)

// Doors decides what a request needs. A path that it does not know needs the scope admin: default deny.
type Doors struct {
	// scopes maps a procedure path to the scopes of which one is needed.
	scopes map[string][]string
	// keyless are path prefixes that need no key.
	keyless []string
	// openai is set for the OpenAI-compatible door, whose paths all need generate.
	openai bool
	errors *connecthttp.ErrorWriter
}

// RPCDoors are the procedures of ktms.v1. Reads of the control plane are those that the proto marks as free of side
// effects. keyless names further path prefixes that need no key.
func RPCDoors(keyless ...string) *Doors {
	d := &Doors{scopes: map[string][]string{}, keyless: keyless, errors: connecthttp.NewErrorWriter()}
	files := []protoreflect.FileDescriptor{
		ktmsv1.File_ktms_v1_gateway_proto, ktmsv1.File_ktms_v1_admin_proto, ktmsv1.File_ktms_v1_node_proto,
	}
	for _, file := range files {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				method := service.Methods().Get(j)
				d.scopes["/"+string(service.FullName())+"/"+string(method.Name())] = scopesOf(service, method)
			}
		}
	}
	return d
}

func scopesOf(service protoreflect.ServiceDescriptor, method protoreflect.MethodDescriptor) []string {
	switch service.Name() {
	case "GatewayService":
		return []string{caller.ScopeGenerate}
	case "NodeRegistryService":
		return []string{caller.ScopeNode}
	}
	options, _ := method.Options().(*descriptorpb.MethodOptions)
	if options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
		return []string{caller.ScopeAdminRead}
	}
	return []string{caller.ScopeAdmin}
}

// OpenAIDoors are the paths of the OpenAI-compatible door.
func OpenAIDoors(keyless ...string) *Doors {
	return &Doors{keyless: keyless, openai: true}
}

// Middleware lets a request through to next with its caller in the context, or refuses it in the door's own shape
// without touching the body.
func (a *Authenticator) Middleware(doors *Doors, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, prefix := range doors.keyless {
			if strings.HasPrefix(r.URL.Path, prefix) {
				r.Body = http.MaxBytesReader(w, r.Body, maxKeylessBody)
				next.ServeHTTP(w, r)
				return
			}
		}
		c, err := a.Authenticate(r.Context(), bearer(r))
		if err == nil {
			err = doors.allow(c, r.URL.Path)
		}
		if err != nil {
			doors.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(caller.NewContext(r.Context(), c)))
	})
}

func (d *Doors) allow(c *caller.Caller, path string) error {
	scopes := []string{caller.ScopeGenerate}
	if !d.openai {
		scopes = []string{caller.ScopeAdmin}
		if needed, known := d.scopes[path]; known {
			scopes = needed
		}
	}
	// Kinds of keys do not overlap, whatever scopes a row was given by hand.
	switch node := slices.Contains(scopes, caller.ScopeNode); {
	case node && c.NodeID == "":
		return status.New(status.PermissionDenied, "only a node key (%s…) opens NodeRegistryService; an admin mints one with MintNodeKey", NodeKeyPrefix)
	case !node && c.NodeID != "":
		return status.New(status.PermissionDenied, "this key registers the node %q with NodeRegistryService and opens nothing else; use a client key here", c.NodeID)
	case c.May(scopes...):
		return nil
	}
	return status.New(status.PermissionDenied, "this API key lacks the scope %q", scopes[0])
}

func (d *Doors) refuse(w http.ResponseWriter, r *http.Request, err error) {
	// net/http reads what is left of a body before it sends the answer. A stranger's body may never come.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedBody))
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	if status.As(err).Reason == status.Unauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="ktms"`)
	}
	if d.openai {
		status.WriteOpenAI(w, err)
		return
	}
	_ = d.errors.Write(w, r, status.RPC(err)) // the caller is gone when this fails
}

// bearer returns the key of an Authorization header, or "".
func bearer(r *http.Request) string {
	scheme, key, found := strings.Cut(r.Header.Get("Authorization"), " ")
	if !found || !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}
