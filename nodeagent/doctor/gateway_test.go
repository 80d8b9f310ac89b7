package doctor

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"

	"github.com/ai-process/ktms/nodeagent/engine"
)

// TestExamineGateway looks at what lies between the engine and the gateway.
func TestExamineGateway(t *testing.T) {
	t.Parallel()
	examine(t, []examination{
		{"gateway away", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) {
			g.err = connect.NewError(connect.CodeUnavailable, "restarting")
		}, "answered with an error: restarting", 1},
		{"gateway behind TLS", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, g *gateway) {
			g.err = connect.NewError(connect.CodeUnavailable, "unexpected EOF")
			s := httptest.NewTLSServer(http.NotFoundHandler())
			t.Cleanup(s.Close)
			o.Target.Host = s.Listener.Addr().String()
			o.Machine.Dial = (&net.Dialer{}).DialContext
		}, "speaks TLS: add --tls", 1},
		{"key wrong", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) {
			g.err = connect.NewError(connect.CodeUnauthenticated, "invalid key")
		}, "does not accept the node key (invalid key)", 1},
		{"key of another node", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) {
			g.err = connect.NewError(connect.CodePermissionDenied, `key belongs to node "x"`)
		}, `key belongs to node "x"|minted for`, 1},
		{"no node pool", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) {
			g.err = connect.NewError(connect.CodeUnimplemented, "no")
		}, "gRPC port (9090", 1},
		{"one model not allowed", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) { g.refused = []string{"b:1"} },
			`note     model "b:1" not permitted|allows 1 of`, 0},
		{"one spelling not allowed", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) { g.refused = []string{"a:latest"} }, "allows 2 of", 0},
		{"the named model not allowed", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, g *gateway) {
			o.Selection.Only, g.refused = []string{"a", "b:1"}, []string{"b:1"}
		}, `PROBLEM  model "b:1" not permitted for this node key|--only-model`, 1},
		{"no model allowed", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) { g.refused = []string{"a", "a:latest", "b:1"} },
			`PROBLEM  model "a:latest" not permitted|PROBLEM  model "b:1" not permitted`, 2},

		{"endpoint of the wrong machine", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) { o.Endpoint = "http://localhost:11434/v1" },
			"the gateway's own machine", 1},
		{"no model in the catalogue", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) { g.uncatalogued = []string{"a", "a:latest", "b:1"} },
			"PROBLEM  no request reaches the model a:latest, since the catalogue lacks it: an administrator adds it with UpsertModel, vendor local, " +
				"under exactly the id a:latest or a\n|PROBLEM  no request reaches the model b:1", 2},
		{"one model not in the catalogue", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) { g.uncatalogued = []string{"a:latest", "b:1"} },
			"note     no request reaches the model b:1|the catalogue has 1 of|no problem found", 0},
		{"a named model not in the catalogue", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, g *gateway) {
			o.Selection.Only, g.uncatalogued = []string{"a", "b:1"}, []string{"b:1"}
		}, "PROBLEM  no request reaches the model b:1|exactly the id b:1, as --only-model spells it", 1},
		{"a model neither allowed nor in the catalogue", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) {
			g.refused, g.uncatalogued = []string{"b:1"}, []string{"b:1"}
		}, `note     model "b:1" not permitted|the catalogue has 1 of`, 0},

		{"endpoint on loopback", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, g *gateway) {
			o.Endpoint, o.Target.Host = "http://127.0.0.1:11434/v1", "127.0.0.1:9090"
			t.Cleanup(func() {
				if g.asked != o.Endpoint {
					t.Errorf("the gateway was asked about the endpoint %q", g.asked)
				}
			})
		}, "ok       the gateway takes the endpoint http://127.0.0.1:11434/v1|no problem found", 0},
		{"endpoint refused", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, g *gateway) {
			o.Endpoint, g.closed = "http://10.0.0.1:11434/v1", "not allowed for this key"
		}, "PROBLEM  the gateway would refuse the endpoint http://10.0.0.1:11434/v1: not allowed for this key", 1},
		{"endpoint on loopback without the gateway's word", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, g *gateway) {
			o.Endpoint, o.Target.Host = "http://127.0.0.1:11434/v1", "127.0.0.1:9090"
			g.err = connect.NewError(connect.CodeUnimplemented, "no")
		}, "note     the endpoint is a loopback address", 1},
		{"private endpoint without the gateway's word", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, g *gateway) {
			o.Endpoint, g.err = "http://10.0.0.1:11434/v1", connect.NewError(connect.CodeUnimplemented, "no")
		}, "note     the endpoint is a private address, so the node key's allowed_cidrs", 1},
		{"endpoint on another port of this machine", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.Endpoint, o.Target.Host = "http://127.0.0.1:1/v1", "127.0.0.1:9090"
			o.Reachable = openAt(t, engine.Generic, "http://127.0.0.1:1")
		}, "nothing answers at the endpoint http://127.0.0.1:1/v1: give the address of the engine, like http://127.0.0.1:", 1},
		{"endpoint that nobody serves", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.Endpoint, o.Reachable = "http://10.0.0.1:11434/v1", openAt(t, engine.Generic, "http://127.0.0.1:1")
		}, "nothing answers at the endpoint|OLLAMA_HOST", 1},
		{"endpoint that answers", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.Endpoint = "http://gpu.example.com/v1"
			o.Reachable, _ = site{"/v1/models": `{"data":[]}`}.open(t, engine.Generic)
		}, "answers at the endpoint", 0},
		{"endpoint that does not answer from here", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.Endpoint = "http://gpu.example.com/v1"
			o.Reachable, _ = site{}.open(t, engine.Generic)
		}, "note     the endpoint", 0},

		{"tunnel", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) { tunnel(o) }, "cloudflared version 1|edge answers at region1", 0},
		{"no cloudflared", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) {
			tunnel(o)
			o.Machine.Run = func(context.Context, string, ...string) ([]byte, error) { return nil, exec.ErrNotFound }
		}, "cloudflared does not run", 1},
		{"port 7844 blocked", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) {
			tunnel(o)
			o.Machine.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
				if strings.HasSuffix(address, ":7844") {
					return nil, errBlocked
				}
				a, _ := net.Pipe()
				return a, nil
			}
		}, "outbound port 7844 is blocked (i/o timeout)", 1},
		{"no internet", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) {
			tunnel(o)
			o.Machine.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errBlocked }
		}, "api.trycloudflare.com:443", 1},
	})
}
